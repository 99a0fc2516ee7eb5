"""Grades a workspace against expected.json; copied into each task as check.py.

Standard library only. Deliverables are judged first; side conditions (inputs
unchanged, nothing deleted) count only once every deliverable is right, so an
agent that does nothing, or writes the wrong thing, scores exactly 0. Trailing
blanks and newlines never matter. Code from the workspace runs only for the
kind `script`, in a subprocess with a time limit.
"""

import hashlib
import json
import math
import os
import sqlite3
import subprocess
import tarfile
import zlib
from pathlib import Path

EXPECTED = Path(__file__).resolve().parent / "expected.json"
MAX_BYTES = 4 << 20
SCRIPT_SECONDS = 10


def grade(workspace: str, final_message: str, transcript: list) -> dict[str, float]:
  """Named values, 0.0 or 1.0, for the workspace as the agent left it."""
  root = Path(workspace)
  expected = json.loads(EXPECTED.read_text())
  values = {
      name: float(_right(root, spec))
      for name, spec in expected["deliverables"].items()
  }
  done = all(values.values())
  for path, digest in expected["unchanged"].items():
    done = done and _digest(root / path) == digest
  values["rest_unchanged"] = float(done)
  return values


def _right(root: Path, spec: dict) -> bool:
  path = root / spec["path"]
  if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
    return False
  try:
    return bool(_KINDS[spec["kind"]](path, spec))
  except (ValueError, OSError, EOFError, RecursionError):
    return False  # not of the expected format at all
  except (sqlite3.Error, tarfile.TarError, zlib.error):
    return False


def _text(path: Path, spec: dict) -> bool:
  return _lines(path) == spec["lines"]


def _number(path: Path, spec: dict) -> bool:
  text = path.read_text().strip()
  value = float(text)
  plain = all(c in "0123456789.-+" for c in text)  # neither 1_0 nor nan nor 1e3
  return plain and math.isclose(value, spec["value"], rel_tol=0, abs_tol=0.005)


def _file(path: Path, spec: dict) -> bool:
  return _digest(path) == spec["sha256"]


def _moved(path: Path, spec: dict) -> bool:
  """The same bytes at the new place, and nothing at the old one."""
  old = path.parents[len(Path(spec["path"]).parts) - 1] / spec["source"]
  return _file(path, spec) and not os.path.lexists(old)


def _json(path: Path, spec: dict) -> bool:
  return json.loads(path.read_text()) == spec["value"]


def _tar(path: Path, spec: dict) -> bool:
  found = {}
  with tarfile.open(path) as archive:
    for member in archive:
      if member.isdir():
        continue
      stream = archive.extractfile(member) if member.isfile() else None
      if stream is None or member.size > MAX_BYTES:
        return False
      name = os.path.normpath(member.name)
      found[name] = hashlib.sha256(stream.read(MAX_BYTES)).hexdigest()
  return found == spec["members"]


def _database(path: Path, spec: dict) -> bool:
  uri = f"file:{path.resolve()}?mode=ro&immutable=1"
  connection = sqlite3.connect(uri, uri=True)
  try:
    rows = connection.execute(f"select * from {spec['table']} order by 1").fetchall()
  finally:
    connection.close()
  return [list(row) for row in rows] == spec["rows"]


def _script(path: Path, spec: dict) -> bool:
  """The script, run again in the workspace, leaves the right file once more."""
  root = path.parents[len(Path(spec["path"]).parts) - 1]
  result = root / spec["result"]
  before = result.read_bytes()
  result.unlink()
  try:
    run = subprocess.run(
        ["python3", spec["path"]],
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SCRIPT_SECONDS,
        check=False,
    )
    return run.returncode == 0 and _number(result, spec)
  except subprocess.TimeoutExpired:
    return False
  finally:
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_bytes(before)


def _lines(path: Path) -> list[str]:
  return [line.rstrip() for line in path.read_text().rstrip().split("\n")]


def _digest(path: Path) -> str | None:
  """SHA-256 of a file; None where there is no plain file."""
  if path.is_symlink() or not path.is_file():
    return None
  return hashlib.sha256(path.read_bytes()).hexdigest()


_KINDS = {
    "text": _text,
    "number": _number,
    "file": _file,
    "moved": _moved,
    "json": _json,
    "tar": _tar,
    "database": _database,
    "script": _script,
}
