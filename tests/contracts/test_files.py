"""What was acknowledged survives, and a reader never sees a part."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import append_line, read_lines, write_atomic, write_json


def test_lines_survive_kill_9(tmp_path):
  path = tmp_path / "log.jsonl"
  child = subprocess.Popen(
      [
          sys.executable,
          "-c",
          "import sys; from pathlib import Path\n"
          "from clawgym_jax.contracts.files import append_line\n"
          "for i in range(10**6):\n"
          "  append_line(Path(sys.argv[1]), {'i': i}); print(i, flush=True)",
          str(path),
      ],
      stdout=subprocess.PIPE,
      text=True,
  )
  acknowledged = [int(child.stdout.readline()) for _ in range(50)]
  os.kill(child.pid, signal.SIGKILL)
  child.wait()
  kept = [line["i"] for line in read_lines(path)]
  assert kept[:50] == acknowledged == list(range(50))


def test_a_torn_line_is_skipped_and_the_next_one_whole(tmp_path):
  path = tmp_path / "log.jsonl"
  append_line(path, {"i": 0})
  with open(path, "a") as file:
    file.write('{"i": 1, "te')
  append_line(path, {"i": 2})
  assert [line["i"] for line in read_lines(path)] == [0, 2]
  assert list(read_lines(tmp_path / "absent")) == []


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
  path = tmp_path / "a.json"
  write_json(path, {"a": 1})

  def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")

  monkeypatch.setattr(os, "fsync", full)
  with pytest.raises(UserError, match="no space left.*same command again"):
    write_atomic(path, "new")
  with pytest.raises(UserError, match="no space left"):
    append_line(tmp_path / "b.jsonl", {})
  monkeypatch.undo()
  assert path.read_text() == '{\n "a": 1\n}\n'
  assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "b.jsonl"]


def test_nan_never_enters_a_file(tmp_path):
  with pytest.raises(ValueError):
    write_json(tmp_path / "a.json", {"x": float("nan")})
  assert not (tmp_path / "a.json").exists()
