"""Orbax folders: bytes come back, Orbax alone reads them, damage is named."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from clawgym_jax.checkpoints import weights
from clawgym_jax.checkpoints.tensors import Tensor, held
from clawgym_jax.contracts.errors import UserError

RNG = np.random.default_rng(0)
VALUES = {
    "model.norm.weight": RNG.normal(size=5).astype(np.float32),
    "model.layers.0.mlp.gate.weight": RNG.normal(size=(7, 3)).astype(ml_dtypes.bfloat16),
    "lm_head.weight": RNG.normal(size=(4, 6)).astype(np.float16),
}


def test_bytes_come_back_and_orbax_alone_reads_them(tmp_path):
  weights.write(tmp_path, {name: held(value) for name, value in VALUES.items()})
  found = weights.read(tmp_path)
  assert found.keys() == VALUES.keys()
  for name, value in VALUES.items():
    assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype)
    assert found[name].read().tobytes() == value.tobytes()
  with ocp.StandardCheckpointer() as reader:
    plain = reader.restore((tmp_path / weights.FOLDER).absolute())
  for name, value in VALUES.items():
    np.testing.assert_array_equal(np.asarray(plain[name]), value)


def test_no_more_is_in_memory_than_is_on_its_way(tmp_path, monkeypatch):
  monkeypatch.setattr(weights, "_IN_FLIGHT", 1000)
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
  weights.write(tmp_path, tensors, done=done)
  assert live == 0 and most == 2


@pytest.mark.parametrize("fault", ["none", "truncated", "manifest"])
def test_damage_is_named(fault, tmp_path):
  weights.write(tmp_path, {"a": held(np.zeros(100_000, np.float32))})
  if fault == "none":
    with pytest.raises(UserError, match="damaged"):
      weights.read(tmp_path / "elsewhere")
    return
  folder = tmp_path / weights.FOLDER
  largest = max(folder.rglob("*"), key=lambda p: p.stat().st_size * p.is_file())
  victim = {"truncated": largest, "manifest": folder / "manifest.ocdbt"}[fault]
  os.truncate(victim, victim.stat().st_size // 2)
  with pytest.raises(UserError, match="damaged"):
    weights.read(tmp_path)["a"].read()
