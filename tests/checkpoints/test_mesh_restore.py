"""Checkpoints of every format are laid out on any mesh, each device given its part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.checkpoints import hf, names
from clawgym_jax.checkpoints.orbax import Checkpoints, TrainState
from clawgym_jax.checkpoints.tensors import Tensor
from clawgym_jax.models import ModelConfig
from clawgym_jax.parallel import make_mesh
from tests import eight_devices
from tests.checkpoints.test_hf import FAMILIES

QUICK = {"qwen3_moe"}  # compiling is what takes the time

MESHES = ({"fsdp": 2, "tensor": 2, "expert": 2}, {"fsdp": 8}, {"data": 4, "tensor": 2})


def on_eight_devices(folder: str) -> None:
  folder = Path(folder)
  plain = {n: t.read() for n, t in hf.read(folder / "hf").tensors.items()}
  for step, axes in enumerate(MESHES):
    with jax.set_mesh(make_mesh(**axes)):
      for source in ("hf", "orbax"):
        model, _ = hf.load(folder / source)
        split(model, axes)
        compare(model, plain)
      # And back: what lies on a mesh is written as the same bytes.
      _, tokenizer = hf.load(folder / "hf")
      hf.save(folder / "again", model, tokenizer)
      for name, tensor in hf.read(folder / "again").tensors.items():
        assert tensor.read().tobytes() == plain[name].tobytes(), name
      # A state saved from one mesh is a checkpoint as any other.
      state = TrainState(
          step=step, params=nnx.state(model, nnx.Param), config=model.config.to_hf()
      )
      saver = Checkpoints(folder / "run", keep=1)
      saver.save(state)
      saver.close()
  from clawgym_jax.checkpoints import state as saved

  found = saved.read(Checkpoints(folder / "run"), folder / "hf")
  with jax.set_mesh(make_mesh(tensor=2, fsdp=4)):
    compare(names.build(ModelConfig.from_hf(found.config), found.tensors), plain)


def split(model, axes) -> None:
  """Parameters lie as they say, and no device holds what it need not."""
  for path, variable in nnx.to_flat_state(nnx.state(model, nnx.Param)):
    value = variable[...]
    spec = variable.get_metadata("out_sharding")
    parts = [axes.get(axis, 1) for axis in spec if axis is not None]
    shard = value.addressable_shards[0].data
    assert shard.size * np.prod(parts, dtype=int) == value.size, path


def compare(model, plain) -> None:
  found = names.tensors(nnx.state(model, nnx.Param))
  assert found.keys() == plain.keys()
  for name, tensor in found.items():
    np.testing.assert_array_equal(tensor.read(), plain[name], err_msg=name)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "families",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(FAMILIES.keys() - QUICK, id="rest", marks=pytest.mark.slow),
    ],
)
def test_eight_devices(tmp_path, tokenizer, families):
  size = -(-tokenizer.vocab_size // 8) * 8  # the axes must divide it
  for family in families:
    hf.save(tmp_path / family / "hf", FAMILIES[family](size, seed=7), tokenizer)
    source = hf.read(tmp_path / family / "hf")
    hf.write(tmp_path / family / "orbax", source, orbax=True)
  cases = {family: [str(tmp_path / family)] for family in families}
  found = eight_devices.failures(on_eight_devices, cases)
  assert found == dict.fromkeys(families, "")


def test_a_part_is_put_together_from_its_tensors_alone(tokenizer):
  model = FAMILIES["qwen3_moe"](tokenizer.vocab_size)
  tensors = names.tensors(nnx.state(model, nnx.Param))
  read = []

  def seen(name: str, tensor: Tensor) -> Tensor:
    return replace(tensor, read=lambda: (read.append(name), tensor.read())[1])

  tensors = {name: seen(name, tensor) for name, tensor in tensors.items()}
  path = ("model", "layers", "mlp", "experts", "gate_proj", "weight")
  whole = np.asarray(model.model.layers.mlp.experts.gate_proj.weight[...])
  spans = [
      (range(1, 2), range(2, 5), range(0, 16), range(0, 64)),
      (range(1, 2), range(2, 4), range(16, 32), range(0, 64)),
  ]
  found = names._assemble(path, whole.shape, set(spans), tensors, np.float32)
  for span in spans:
    part = tuple(slice(axis.start, axis.stop) for axis in span)
    np.testing.assert_array_equal(found[span], whole[part])
  at = "model.layers.1.mlp.experts"  # once, though it is in two parts
  assert read == [f"{at}.{expert}.gate_proj.weight" for expert in (2, 3, 4)]
