"""What an agent may leave behind is wrong at worst: no crash, no long wait."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sqlite3
import tarfile
import time

import pytest

from data_gen import grader


@pytest.fixture
def judge(tmp_path, monkeypatch):
  """judge(spec) -> the deliverable's value in tmp_path."""
  expected = tmp_path / "expected.json"
  monkeypatch.setattr(grader, "EXPECTED", expected)

  def run(**spec) -> float:
    expected.write_text(json.dumps({"deliverables": {"it": spec}, "unchanged": {}}))
    started = time.monotonic()
    value = grader.grade(str(tmp_path), "", [])["it"]
    assert time.monotonic() - started < 15
    return value

  return run


@pytest.mark.parametrize("good", ["7.5", "7.50\n", " 7.5 \n\n", "+7.5"])
def test_numbers_in_any_plain_form(judge, tmp_path, good):
  (tmp_path / "n").write_text(good)
  assert judge(kind="number", path="n", value=7.5) == 1.0


@pytest.mark.parametrize(
    "bad", ["", "nan", "inf", "7.52", "7_5", "75e-1", "7.5 7.5", "9" * 5000, "\xff"]
)
def test_other_numbers_are_wrong(judge, tmp_path, bad):
  (tmp_path / "n").write_bytes(bad.encode("latin-1"))
  assert judge(kind="number", path="n", value=7.5) == 0.0


def test_trailing_blanks_do_not_matter_but_lines_do(judge, tmp_path):
  (tmp_path / "t").write_text("a  \nb\n\n\n")
  assert judge(kind="text", path="t", lines=["a", "b"]) == 1.0
  (tmp_path / "t").write_text("b\na\n")
  assert judge(kind="text", path="t", lines=["a", "b"]) == 0.0


def test_links_and_folders_are_no_deliverables(judge, tmp_path):
  (tmp_path / "real").write_text("a\n")
  (tmp_path / "link").symlink_to("real")
  (tmp_path / "folder").mkdir()
  for path in ("link", "folder", "absent"):
    assert judge(kind="text", path=path, lines=["a"]) == 0.0


def test_a_copy_is_not_a_move(judge, tmp_path):
  (tmp_path / "old").write_text("a\n")
  (tmp_path / "new").write_text("a\n")
  assert judge(kind="moved", path="new", source="old", lines=["a"]) == 0.0
  (tmp_path / "old").unlink()
  assert judge(kind="moved", path="new", source="old", lines=["a"]) == 1.0


def test_deep_json_is_wrong(judge, tmp_path):
  (tmp_path / "j").write_text("[" * 100_000)
  assert judge(kind="json", path="j", value=[]) == 0.0


def test_archives(judge, tmp_path):
  digest = hashlib.sha256(b"x").hexdigest()

  def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
      for name in names:
        member = tarfile.TarInfo(name)
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    return gzip.compress(buffer.getvalue())

  def value(raw: bytes) -> float:
    (tmp_path / "a").write_bytes(raw)
    return judge(kind="tar", path="a", members={"d/x": digest})

  assert value(archive("./d/x")) == 1.0
  assert value(archive("d/x", "d/y")) == 0.0
  assert value(archive("d/x")[:-9]) == 0.0
  assert value(gzip.compress(bytes(256 << 20), 1)) == 0.0  # a bomb
  assert value(b"\x1f\x8b nothing") == 0.0


def test_an_endless_view_is_wrong(judge, tmp_path):
  connection = sqlite3.connect(tmp_path / "d")
  connection.execute(
      "create view t as with recursive n(i) as (select 1 union all select i + 1 from n)"
      " select max(i) from n"
  )
  connection.commit()
  connection.close()
  assert judge(kind="database", path="d", table="t", rows=[[1]]) == 0.0


def test_a_script_must_read_its_source_and_may_not_hang(judge, tmp_path, monkeypatch):
  monkeypatch.setattr(grader, "SCRIPT_SECONDS", 2)
  spec = {
      "kind": "script",
      "path": "s.py",
      "source": "in",
      "row": "4\n",
      "result": "out",
      "value": 10,
  }
  (tmp_path / "in").write_text("6\n")

  def value(script: str) -> float:
    (tmp_path / "out").write_text("6\n")
    (tmp_path / "s.py").write_text(script)
    got = judge(**spec)
    assert (tmp_path / "in").read_text() == (tmp_path / "out").read_text() == "6\n"
    return got

  assert value("open('out', 'w').write(str(sum(map(int, open('in')))))") == 1.0
  assert value("open('out', 'w').write('6')") == 0.0
  assert value("raise SystemExit(1)") == 0.0
  for left in ("os.mkfifo('out')", "os.mkdir('out')", "os.symlink('out', 'out')"):
    assert value(f"import os\n{left}") == 0.0
    assert (tmp_path / "out").is_file() and not (tmp_path / "out").is_symlink()
  hang = "import os, time\nif os.fork() == 0: time.sleep(60)\ntime.sleep(60)"
  assert value(hang) == 0.0
