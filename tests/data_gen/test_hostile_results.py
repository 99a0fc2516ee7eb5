"""Whatever an agent leaves where a result belongs scores 0 and never raises.

A check that raises or hangs would leave the attempt unscored, and so spare a
policy the zero that it earned.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import sqlite3
import tarfile
import time
from pathlib import Path

import pytest

from data_gen import grader
from data_gen.draft import REGISTRY
from data_gen.compact import make_task
from tests.data_gen import local_agent


def _sparse(path: Path) -> None:
  with open(path, "wb") as file:
    file.truncate(1 << 34)


def _sparse_member(path: Path) -> None:
  """An archive whose one file claims more bytes than there is memory."""
  member = tarfile.TarInfo("x")
  member.size = 1 << 60
  path.write_bytes(gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(2048)))


HOSTILE = {
    "invalid UTF-8": lambda path: path.write_bytes(b"\xff\xfe\x00\xd8" * 40),
    "directory": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "link to itself": lambda path: path.symlink_to(path.name),
    "huge": _sparse,
    "half a database": lambda path: path.write_bytes(
        b"SQLite format 3\0" + b"\x10\x00\x01\x01\x00\x40\x20\x20" + b"\xff" * 4096
    ),
    "half of JSON": lambda path: path.write_text('{"a": ['),
    "deep JSON": lambda path: path.write_text("[" * 200_000),
    "half an archive": lambda path: path.write_bytes(gzip.compress(b"x" * 999)[:-9]),
    "a lying archive": _sparse_member,
}


def _replace(path: Path, make) -> None:
  if path.is_dir() and not path.is_symlink():
    shutil.rmtree(path)
  path.unlink(missing_ok=True)
  make(path)


@pytest.mark.parametrize("family", sorted(REGISTRY))
def test_no_hostile_result_scores_or_raises(tmp_path, family):
  task = make_task(tmp_path / "task", REGISTRY[family], 3, "train", 0)
  spec = json.loads((task.checks / "expected.json").read_text())
  solved = local_agent.copy_workspace(task, tmp_path / "solved")
  local_agent.replay(task, solved)
  for kind, make in HOSTILE.items():
    root = tmp_path / "root"
    shutil.copytree(solved, root)
    bystander = next(iter(spec["unchanged"]))
    _replace(root / bystander, make)
    assert local_agent.grade(task, root)["done_and_rest_unchanged"] == 0.0, (kind, bystander)
    for deliverable in spec["deliverables"].values():
      _replace(root / deliverable["path"], make)
    values = local_agent.grade(task, root)
    assert values and not any(values.values()), (kind, values)
    shutil.rmtree(root)


@pytest.mark.parametrize("end", ["raise", "hang", "die", "eat"])
def test_however_judging_ends_the_answer_is_no(tmp_path, monkeypatch, end):
  def judging(_root, _path, _spec):
    if end == "raise":
      raise SystemError("nobody expects this")
    if end == "hang":
      time.sleep(60)
    if end == "die":
      os.kill(os.getpid(), signal.SIGKILL)
    return bytes(1 << 60)

  spec = {"deliverables": {"it": {"kind": "odd", "path": "f"}}, "unchanged": {}}
  (tmp_path / "expected.json").write_text(json.dumps(spec))
  (tmp_path / "f").write_text("x")
  monkeypatch.setattr(grader, "EXPECTED", tmp_path / "expected.json")
  monkeypatch.setattr(grader, "JUDGE_SECONDS", 1)
  monkeypatch.setitem(grader._KINDS, "odd", judging)
  started = time.monotonic()
  assert grader.grade(str(tmp_path), "", []) == {"it": 0.0, "done_and_rest_unchanged": 0.0}
  assert time.monotonic() - started < 10


def test_one_slow_step_of_a_query_is_cut_short(tmp_path, monkeypatch):
  """A search that takes minutes within one step of the database."""
  spec = {"kind": "database", "path": "d", "table": "t", "rows": [[0]]}
  expected = tmp_path / "expected.json"
  expected.write_text(json.dumps({"deliverables": {"it": spec}, "unchanged": {}}))
  monkeypatch.setattr(grader, "EXPECTED", expected)
  monkeypatch.setattr(grader, "JUDGE_SECONDS", 1)
  with sqlite3.connect(tmp_path / "d") as connection:
    zeros = "hex(zeroblob({}))".format
    search = f"instr({zeros(2_000_000)}, {zeros(1_000_000)} || '1')"
    connection.execute(f"create view t as select {search}")
  connection.close()
  started = time.monotonic()
  assert grader.grade(str(tmp_path), "", [])["it"] == 0.0
  assert time.monotonic() - started < 10
