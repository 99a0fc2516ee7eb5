"""Orbax folders: bytes come back, Orbax alone reads them, damage is named."""

from __future__ import annotations

import json
import os

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from clawgym_jax.checkpoints import weights, weights_writer
from clawgym_jax.checkpoints.tensors import Tensor, held
from clawgym_jax.contracts.errors import UserError

RNG = np.random.default_rng(0)
VALUES = {
    "model.norm.weight": RNG.normal(size=5).astype(np.float32),
    "model.layers.0.mlp.gate.weight": RNG.normal(size=(7, 3)).astype(ml_dtypes.bfloat16),
    "lm_head.weight": RNG.normal(size=(4, 6)).astype(np.float16),
}


def test_bytes_come_back_and_orbax_alone_reads_them(tmp_path):
  weights_writer.write(tmp_path, {name: held(value) for name, value in VALUES.items()})
  found = weights.read(tmp_path)
  assert found.keys() == VALUES.keys()
  for name, value in VALUES.items():
    assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype)
    assert found[name].read().tobytes() == value.tobytes()
  with ocp.StandardCheckpointer() as reader:
    plain = reader.restore((tmp_path / weights.FOLDER).absolute())
  for name, value in VALUES.items():
    np.testing.assert_array_equal(np.asarray(plain[name]), value)


def test_one_tensor_is_in_memory_at_a_time(tmp_path):
  live, most = 0, 0

  def read() -> np.ndarray:
    nonlocal live, most
    live += 1
    most = max(most, live)
    return np.ones(100, np.float32)

  def done(nbytes: int) -> None:
    nonlocal live
    live -= 1
    assert nbytes == 400

  tensors = {f"t{i}": Tensor((100,), np.dtype("float32"), read) for i in range(50)}
  weights_writer.write(tmp_path, tensors, done=done)
  assert live == 0 and most == 1


def about(path, **change) -> None:
  path.write_text(json.dumps(json.loads(path.read_text()) | change))


FAULTS = {
    "truncated": lambda array: os.truncate(array / "0", 200),
    "missing": lambda array: (array / "0").unlink(),
    "no json": lambda array: os.truncate(array / ".zarray", 20),
    "another shape": lambda array: about(array / ".zarray", shape=[90], chunks=[90]),
    "many chunks": lambda array: about(array / ".zarray", chunks=[50]),
    "compressed": lambda array: about(array / ".zarray", compressor={"id": "zstd"}),
    "type": lambda array: about(array / ".zarray", dtype="<q9"),
    "objects": lambda array: about(array / ".zarray", dtype="|O"),
    "other order of bytes": lambda array: about(array / ".zarray", dtype=">f4"),
    "fractions": lambda array: about(array / ".zarray", shape=[100.0], chunks=[100.0]),
    "filtered": lambda array: about(array / ".zarray", filters=[{"id": "delta"}]),
    "nested": lambda array: (array / ".zarray").write_text("[" * 100_000),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_damage_is_named(fault, tmp_path):
  weights_writer.write(tmp_path, {"a": held(np.zeros(100, np.float32))})
  array = tmp_path / weights.FOLDER / "a"
  FAULTS[fault](array)
  with pytest.raises(UserError, match=f"{array} is damaged"):
    weights.read(tmp_path)


def test_a_folder_without_arrays_is_named(tmp_path):
  with pytest.raises(UserError, match="no arrays"):
    weights.read(tmp_path)
