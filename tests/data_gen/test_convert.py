"""Tasks travel in one file and come back the same, or are refused."""

from __future__ import annotations

import pytest

from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.task import list_tasks, load_task
from data_gen.convert import pack, unpack
from data_gen.synthesize import synthesize


@pytest.fixture
def folder(tmp_path):
  synthesize(tmp_path / "tasks", 5, 1, "train")
  return tmp_path / "tasks"


def test_round_trip(folder, tmp_path):
  assert pack(folder, tmp_path / "a.tar") == 5
  pack(folder, tmp_path / "b.tar")
  assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
  assert unpack(tmp_path / "a.tar", tmp_path / "back") == 5
  assert unpack(tmp_path / "a.tar", tmp_path / "back") == 0
  for before, after in zip(
      list_tasks(folder), list_tasks(tmp_path / "back"), strict=True
  ):
    assert load_task(before) == load_task(after)


def test_what_is_damaged_is_refused(folder, tmp_path):
  with pytest.raises(UserError, match="no tasks"):
    pack(tmp_path, tmp_path / "a.tar")
  (tmp_path / "bad.tar").write_bytes(b"no tar")
  with pytest.raises(UserError, match="can't be unpacked"):
    unpack(tmp_path / "bad.tar", tmp_path / "back")
  victim = next(list_tasks(folder)[0].glob("checks/check.py"))
  victim.write_text(victim.read_text() + "\n")
  with pytest.raises(RecordError, match="changed after"):
    pack(folder, tmp_path / "a.tar")
