"""Adapters alone are trained, on one device and on eight, and are handed over."""

import subprocess
import sys

import numpy as np
import pytest
from flax import nnx

from clawgym_jax.chat import vocabulary
from clawgym_jax.checkpoints import hf, names, orbax, peft
from clawgym_jax.data import corpus
from clawgym_jax.models import create
from tests.eight_devices import environment
from tests.sft.test_run import command, losses, write_chats

LORA = ["--config.model.lora.rank=4", "--config.model.lora.targets=q_proj,down_proj"]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
  """Chats, and a model folder with a vocabulary of them."""
  folder = tmp_path_factory.mktemp("start")
  chats = write_chats(folder / "chats.jsonl")
  tokenizer = vocabulary.train(corpus.open_sources(str(chats)).texts(), 320)
  hf.save(folder / "base", create.tiny_qwen3(tokenizer.vocab_size), tokenizer)
  return chats, folder / "base"


def train(start, out, *extra, devices=1):
  chats, base = start
  result = subprocess.run(
      command(chats, out, f"--config.model.source={base}", *LORA, *extra),
      capture_output=True, text=True, timeout=280, env=environment(devices),
  )  # fmt: skip
  assert result.returncode == 0, result.stderr
  return losses(out)


def weights(model):
  tensors = names.tensors(nnx.state(model, nnx.Param))
  return {name: tensor.read() for name, tensor in tensors.items()}


def test_adapters_are_trained_and_nothing_else(start, tmp_path):
  out = tmp_path / "out"
  seen = train(start, out, "--config.optimizer.weight_decay=0.1")
  assert list(seen.values())[-1] < 0.9 * list(seen.values())[0]
  base = hf.load(start[1])[0]
  params, config = orbax.Checkpoints(out / "checkpoints").open_params()
  assert config["lora"] == {"rank": 4, "alpha": 32.0, "targets": ["q_proj", "down_proj"]}
  for path, leaf in nnx.to_flat_state(nnx.state(base, nnx.Param)):
    saved = params[".".join(map(str, path))].read().result()
    np.testing.assert_array_equal(saved, leaf[...])
  before, after = weights(base), weights(hf.load(out / "hf")[0])
  changed = {name for name in before if not np.array_equal(before[name], after[name])}
  assert changed == {n for n in before if "q_proj" in n or "down_proj" in n}
  adapter = peft.read(out / "adapter")
  assert adapter.config.rank == 4 and adapter.base == str(start[1])
  merged = tmp_path / "merged"
  subprocess.run(
      [sys.executable, "-m", "clawgym_jax.convert", f"--from={start[1]}",
       f"--adapter={out / 'adapter'}", f"--to={merged}"],
      check=True, capture_output=True, timeout=120,
  )  # fmt: skip
  for name, value in weights(hf.load(merged)[0]).items():
    np.testing.assert_allclose(value, after[name], atol=1e-6)
  assert train(start, out, "--config.optimizer.weight_decay=0.1") == seen  # it is done


@pytest.mark.slow
def test_eight_devices_train_the_same_adapters(start, tmp_path):
  extra = ["--config.data.batch_rows=8", "--config.epochs=2"]
  one = train(start, tmp_path / "1", *extra)
  eight = train(
      start, tmp_path / "8", *extra,
      "--config.mesh.fsdp=2", "--config.mesh.tensor=2", devices=8,
  )  # fmt: skip
  assert eight == pytest.approx(one, rel=1e-4)
