"""Wrong edits: of every kind of file, well-formed, and different from the right one."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sqlite3
import subprocess
import tarfile
import zipfile

import pytest

from data_gen import mutation
from data_gen.mutation.edits import edits
from sandbox.backends.base import gather, pack, unpack
from sandbox.verify import State


def _database() -> bytes:
  connection = sqlite3.connect(":memory:")
  connection.execute("create table t (id integer primary key, name text)")
  connection.executemany("insert into t values (?, ?)", [(1, "ann"), (2, "bob")])
  connection.commit()
  return connection.serialize()


def _zip() -> bytes:
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, "w") as archive:
    archive.writestr("a/x.txt", "12\n")
  return buffer.getvalue()


def _tar() -> bytes:
  buffer = io.BytesIO()
  with tarfile.open(fileobj=buffer, mode="w") as archive:
    info = tarfile.TarInfo("x.txt")
    info.size = 3
    archive.addfile(info, io.BytesIO(b"12\n"))
  return gzip.compress(buffer.getvalue())


def _events(*names: str) -> bytes:
  events = "".join(
      f"BEGIN:VEVENT\r\nUID:{n}\r\nDTSTART:20260105\r\nSUMMARY:{n}\r\nEND:VEVENT\r\n"
      for n in names
  )
  return f"BEGIN:VCALENDAR\r\n{events}END:VCALENDAR\r\n".encode()


FILES = {
    "a.csv": b"id,total\n7,12.50\n8,9.75\n",
    "a.csv.gz": gzip.compress(b"id,total\n7,12.50\n8,9.75\n"),
    "a.txt": b"7\n",
    "a.md": b"# Title\n\n- Ann: 12\n",
    "a.json": b'[{"name": "Ann", "n": 1}, {"name": "Bob", "n": 2}]',
    "a.jsonl": b'{"name": "Ann"}\n{"name": "Bob"}\n',
    "a.yaml": b"- name: Ann\n  n: 1\n",
    "a.xml": b"<records><record><n>Ann</n></record></records>",
    "a.html": b"<table><tr><td>Ann</td></tr></table>",
    "a.sql": b"CREATE TABLE t (n TEXT);\nINSERT INTO t VALUES ('Ann', 2);\n",
    "a.ics": _events("one", "two"),
    "a.db": _database(),
    "a.zip": _zip(),
    "a.tar.gz": _tar(),
    "a.py": b"print(1)\n",
    "a.sh": b"#!/bin/sh\necho 1\n",
}


OTHER_KINDS = ("emptied", "reversed", "none", "a guess", "a round guess", "yes")


@pytest.mark.parametrize("path", FILES)
def test_every_kind_of_file_has_wrong_versions(path):
  data = FILES[path]
  found = edits(path, data)
  assert len(found) >= 5, found
  assert len({new for _, new in found}) == len(found)
  assert all(new != data for _, new in found)
  subtle = found[0][1]  # of the same kind
  if path.endswith((".db", ".gz", ".zip")):
    assert subtle[:4] == data[:4]
  if path == "a.json":
    assert all(
        json.loads(new) != json.loads(data)
        for what, new in found
        if what not in OTHER_KINDS
    )
  if path == "a.ics":
    assert all(b"UID:one" in new or b"UID:two" in new for _, new in found[:6])


def test_what_a_format_leaves_free_is_left_alone():
  for what, new in edits("a.xml", FILES["a.xml"]):
    if what not in OTHER_KINDS:
      assert b"<records>" in new and b"</records>" in new, what
  for _, new in edits("a.sql", FILES["a.sql"])[:4]:
    assert new.startswith(b"CREATE TABLE t (n TEXT);\n")


@pytest.mark.parametrize("data", [b"\x1f\x8b n", b"SQLite format 3\0 n", b"PK\3\4 n"])
def test_damaged_and_empty_files_are_edited_as_text(data):
  assert all(new != data for _, new in edits("a.bin", data))
  assert edits("a.json", b"{")[0][1] != b"{"
  assert edits("a.txt", b"")


def test_mutants_are_many_drawn_by_key_and_keep_the_rest():
  initial = {"in.csv": b"id\n7\n", "old.txt": b"x\n", "note.txt": b"keep 1\n"}
  right = State(pack({"in.csv": b"id\n7\n", "out.csv": FILES["a.csv"],
                      "note.txt": b"keep 1\n"}), "Done.", (), ())  # fmt: skip
  found = mutation.mutants(initial, right, "key")
  assert len(found) == mutation.MOST >= 10
  assert found == mutation.mutants(initial, right, "key")
  assert found != mutation.mutants(initial, right, "other key")
  for mutant in found:
    assert unpack(mutant.state.snapshot) != unpack(right.snapshot), mutant.what
  assert sum(m.what.startswith("input ") for m in found) == 1
  assert "old.txt: undone" in [m.what for m in found]
  spoiled = unpack(mutation.spoiled(initial, right).state.snapshot)
  assert spoiled["out.csv"] != FILES["a.csv"] and spoiled["old.txt"] == b"x\n"


def test_side_effects_and_answers_are_made_wrong_too():
  data = {"action": "send", "body": "7"}
  report = {"service": "outbox", "seconds": 1.0, "data": data}
  right = State(pack({}), "There are 7.", (), [report])
  found = {m.what: m.state.reports for m in mutation.mutants({}, right, "key")}
  assert found["an effect lost"] == [] and len(found["an effect twice"]) == 2
  other = [reports for what, reports in found.items() if " another text: " in what]
  assert all(reports[0]["data"]["body"] != "7" for reports in other)
  assert len(found) >= mutation.LEAST, "of one small effect, too"
  assert report["data"]["body"] == "7"
  answered = mutation.mutants({}, State(pack({}), "There are 7."), "key")
  assert answered[0].state.final_message == "There are 2."


@pytest.mark.parametrize(
    ("initial", "after"),
    [
        ({"a.sh": b"#!/bin/sh\necho 1\n"}, {"a.sh": b"#!/bin/sh\necho 2\n"}),
        ({"a.py": b"print(1)\n"}, {"a.py": b"print(2)\n"}),
        ({"old.txt": b"It was 12 then.\n"}, {}),
        ({}, {"a.txt": b"x\n"}),
        ({}, {"a.json": b'{"a": 1}'}),
    ],
)
def test_small_results_allow_enough_wrong_edits(initial, after):
  """Also where only files that the request names are results."""
  right = State(pack(after), "Done.", (), ())
  asked = " ".join([*initial, *after])
  found = mutation.mutants(initial, right, "key", asked=asked)
  assert len(found) >= mutation.LEAST, [m.what for m in found]
  states = {m.state.snapshot for m in found}
  assert len(states) == len(found) and right.snapshot not in states


def test_a_commit_is_remade(tmp_path):
  def git(*arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return subprocess.run(
        ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True,
        text=True,
    ).stdout  # fmt: skip

  git("init", "-q", "-b", "main", ".")
  (tmp_path / "a.txt").write_text("12\n")
  git("add", "a.txt")
  git("commit", "-q", "-m", "one")
  initial = gather(tmp_path)
  (tmp_path / "b.txt").write_text("7\n")
  git("add", "b.txt")
  git("commit", "-q", "-m", "two")
  right = State(pack(gather(tmp_path)))
  found = mutation.mutants(initial, right, "key", 40)
  remade = [m for m in found if "heads/main: " in m.what]
  assert len(remade) >= 6
  heads = set()
  for number, mutant in enumerate(remade):
    place = tmp_path / f"mutant{number}"
    for path, data in unpack(mutant.state.snapshot).items():
      (place / path).parent.mkdir(parents=True, exist_ok=True)
      (place / path).write_bytes(data)
    log = subprocess.run(
        ["git", "log", "--stat", "main"], cwd=place, check=True, capture_output=True
    )
    heads.add(hashlib.sha256(log.stdout).hexdigest())
  assert len(heads) == len(remade)
