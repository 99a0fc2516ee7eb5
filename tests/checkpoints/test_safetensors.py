"""Safetensors files: the library agrees, and a file that lies is named."""

from __future__ import annotations

import json
import os

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from clawgym_jax.checkpoints import safetensors as ours
from clawgym_jax.checkpoints.tensors import BFLOAT16, cast, held
from clawgym_jax.contracts.errors import UserError

RNG = np.random.default_rng(0)
VALUES = {
    "odd": RNG.normal(size=3).astype(ml_dtypes.bfloat16),
    "wide": RNG.normal(size=(2, 5)),
    "single": RNG.normal(size=(4, 3)).astype(np.float32),
    "half": RNG.normal(size=7).astype(np.float16),
    "eight": RNG.normal(size=5).astype(ml_dtypes.float8_e4m3fn),
    "whole": np.arange(5, dtype=np.int64),
    "yes": np.asarray([True, False, True]),
    "nothing": np.zeros((0, 4), np.float32),
    "scalar": np.float32(2.5),
}
TENSORS = {name: held(value) for name, value in VALUES.items()}


def same(tensors) -> None:
  assert tensors.keys() == VALUES.keys()
  for name, tensor in tensors.items():
    value = np.asarray(VALUES[name])
    assert (tensor.shape, tensor.dtype) == (value.shape, value.dtype), name
    assert tensor.read().tobytes() == value.tobytes(), name


def test_the_library_reads_what_is_written_and_the_other_way_round(tmp_path):
  ours.write_file(tmp_path / "model.safetensors", TENSORS)
  with safetensors.safe_open(tmp_path / "model.safetensors", "numpy") as file:
    assert file.metadata() == {"format": "pt"}
    assert set(file.keys()) == VALUES.keys()
    np.testing.assert_array_equal(file.get_tensor("single"), VALUES["single"])
    np.testing.assert_array_equal(file.get_tensor("wide"), VALUES["wide"])
  known = {k: v for k, v in VALUES.items() if k not in ("eight", "scalar")}
  safetensors.numpy.save_file(known, tmp_path / "theirs.safetensors")
  for name, tensor in ours.read_file(tmp_path / "theirs.safetensors").items():
    assert tensor.read().tobytes() == known[name].tobytes()


def test_shards_hold_no_more_than_asked_and_are_read_as_one(tmp_path):
  ours.write_file(tmp_path / "model.safetensors", TENSORS)
  source = ours.read_folder(tmp_path)
  same(source)
  (tmp_path / "parts").mkdir()
  ours.write_folder(tmp_path / "parts", source, shard_bytes=60)
  same(ours.read_folder(tmp_path / "parts"))
  files = sorted((tmp_path / "parts").glob("*.safetensors"))
  assert len(files) > 2
  for path in files:
    tensors = ours.read_file(path)
    assert sum(t.nbytes for t in tensors.values()) <= 60 or len(tensors) == 1
    for tensor in tensors.values():  # readers map them in place
      assert tensor.at[1] % tensor.dtype.itemsize == 0
  index = json.loads((tmp_path / "parts" / ours.INDEX).read_text())
  total = sum(np.asarray(value).nbytes for value in VALUES.values())
  assert index["metadata"]["total_size"] == total


def test_a_change_of_type_leaves_whole_numbers_alone():
  for name, tensor in TENSORS.items():
    changed = cast(name, tensor, BFLOAT16)
    if tensor.dtype.name in ("float64", "float32", "float16", "bfloat16"):
      expected = np.asarray(VALUES[name]).astype(BFLOAT16)
      assert changed.dtype == BFLOAT16
      np.testing.assert_array_equal(changed.read(), expected)
    else:
      assert changed is tensor


def test_what_float16_cannot_hold_is_named():
  fits = np.asarray([65504.0, -65504.0, np.inf, 1e-9], np.float32)
  np.testing.assert_array_equal(
      cast("a", held(fits), np.float16).read(), fits.astype(np.float16)
  )
  for kind in (np.float32, BFLOAT16):
    wide = held(np.asarray([1.0, -70000.0], kind))
    with pytest.raises(UserError, match="^b has values that float16"):
      cast("b", wide, np.float16).read()


def lie(path, change) -> None:
  """Rewrites a file's header as `change` makes it."""
  raw = path.read_bytes()
  length = int.from_bytes(raw[:8], "little")
  header = json.loads(raw[8 : 8 + length])
  change(header)
  text = json.dumps(header).encode()
  path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


FAULTS = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: os.truncate(path, path.stat().st_size - 1),
    "header cut": lambda path: os.truncate(path, 20),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "not json": lambda path: path.write_bytes(b"\x05" + b"\0" * 7 + b"{oops"),
    "a list": lambda path: path.write_bytes(b"\x02" + b"\0" * 7 + b"[]"),
    "huge header": lambda path: path.write_bytes(b"\xff" * 8 + b"{}"),
    "overlap": lambda path: lie(path, lambda h: h["half"].update(data_offsets=[0, 14])),
    "shape": lambda path: lie(path, lambda h: h["half"].update(shape=[8])),
    "negative": lambda path: lie(path, lambda h: h["single"].update(shape=[-4, -3])),
    "fractions": lambda path: lie(
        path, lambda h: h["half"].update(shape=[float(n) for n in h["half"]["shape"]])
    ),
    "type": lambda path: lie(path, lambda h: h["half"].update(dtype="Q4")),
    "no offsets": lambda path: lie(path, lambda h: h["half"].pop("data_offsets")),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_lies_is_named(fault, tmp_path):
  path = tmp_path / "model.safetensors"
  ours.write_file(path, TENSORS)
  FAULTS[fault](path)
  with pytest.raises(UserError, match="model.safetensors is (damaged|missing)"):
    ours.read_folder(tmp_path)


def test_an_index_that_lies_is_named(tmp_path):
  ours.write_folder(tmp_path, TENSORS, shard_bytes=60)
  index = tmp_path / ours.INDEX
  before = json.loads(index.read_text())
  where = before["weight_map"]
  last = max(where.values())

  def write(**change):
    index.write_text(json.dumps({"weight_map": where | change}))

  write(more=last)
  with pytest.raises(UserError, match="has no tensor more"):
    ours.read_folder(tmp_path)
  index.write_text(json.dumps({"weight_map": {k: v for k, v in where.items() if k != "half"}}))
  with pytest.raises(UserError, match="has a tensor half"):
    ours.read_folder(tmp_path)
  for text in ("[]", "[" * 100_000):
    index.write_text(text)
    with pytest.raises(UserError, match="index.json is damaged"):
      ours.read_folder(tmp_path)
  (tmp_path / "in").mkdir()
  ours.write_file(tmp_path / "outside.safetensors", {"half": TENSORS["half"]})
  for file in ("../outside.safetensors", "in/x.safetensors", "..", "in", "a\\b.safetensors"):
    (tmp_path / "in" / ours.INDEX).write_text(json.dumps({"weight_map": {"half": file}}))
    with pytest.raises(UserError, match="index.json is damaged.*not the name of a file"):
      ours.read_folder(tmp_path / "in")
  index.write_text(json.dumps(before))
  (tmp_path / last).unlink()
  with pytest.raises(UserError, match=f"{last} is missing"):
    ours.read_folder(tmp_path)


def test_pickled_weights_are_refused(tmp_path):
  (tmp_path / "pytorch_model.bin").write_bytes(b"x")
  with pytest.raises(UserError, match="pickled"):
    ours.read_folder(tmp_path)
