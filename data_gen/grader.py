"""Grades a workspace against expected.json; copied into each task as check.py.

Standard library only. Deliverables are judged first; that the rest is
unchanged counts only once every deliverable is right, so an agent that does
nothing, or writes the wrong thing, scores exactly 0. Trailing blanks and
newlines never matter. What an agent may leave (links, pipes, bombs, huge
numbers, endless views) is merely wrong: each deliverable is judged in a child
process with bounded time and memory, and a child that dies has said no. So no
workspace makes `grade` raise or hang, which would spare the agent its zero.
Code from the workspace runs only for the kind `script`, with a time limit.

Where CLAWGYM_FORKED is set, this process is such a child itself and may have
none: it may be killed, or raise what depends on its bounds, and is then asked
again where it may.
"""

import hashlib
import json
import math
import os
import resource
import signal
from pathlib import Path

EXPECTED = Path(__file__).resolve().parent / "expected.json"
MAX_BYTES = 4 << 20
SCRIPT_SECONDS = 8
JUDGE_SECONDS = SCRIPT_SECONDS + 1
QUERY_STEPS = 100_000
MEMORY = resource.getrlimit(resource.RLIMIT_DATA)  # of a process that judges: half


def grade(workspace: str, final_message: str, transcript: list) -> dict[str, float]:
  """Named values, 0.0 or 1.0, for the workspace as the agent left it."""
  root = Path(workspace)
  expected = json.loads(EXPECTED.read_text())
  judge = _right_here if "CLAWGYM_FORKED" in os.environ else _right_in_child
  intact = all(
      _digest(root / path) == digest for path, digest in expected["unchanged"].items()
  )
  values = {
      name: float(judge(root, spec)) for name, spec in expected["deliverables"].items()
  }
  values["done_and_rest_unchanged"] = float(intact and all(values.values()))
  return values


def _right_in_child(root: Path, spec: dict) -> bool:
  if not _plain(root / spec["path"]):
    return False
  child = os.fork()
  if child == 0:
    wrong = 1
    try:
      _bound()
      wrong = int(not _right(root, spec))
    finally:
      os._exit(wrong)  # whatever was raised
  return os.waitpid(child, 0)[1] == 0


def _right_here(root: Path, spec: dict) -> bool:
  _bound()
  try:
    return _right(root, spec)
  except (MemoryError, RecursionError):
    raise
  except Exception:
    return False


def _bound() -> None:
  # Half of what a process may have, or its parent too dies of its hunger.
  soft, hard = MEMORY
  if soft != resource.RLIM_INFINITY:
    resource.setrlimit(resource.RLIMIT_DATA, (soft // 2, hard))
  signal.signal(signal.SIGALRM, signal.SIG_DFL)
  signal.alarm(JUDGE_SECONDS)


def _right(root: Path, spec: dict) -> bool:
  path = root / spec["path"]
  return _plain(path) and bool(_KINDS[spec["kind"]](root, path, spec))


def _plain(path: Path) -> bool:
  """Whether a file of bounded size is there, not a link, pipe or folder."""
  try:
    return (
        not path.is_symlink() and path.is_file() and path.stat().st_size <= MAX_BYTES
    )
  except OSError:
    return False


def _text(root: Path, path: Path, spec: dict) -> bool:
  text = path.read_text(encoding="utf-8").rstrip()
  return [line.rstrip() for line in text.split("\n")] == spec["lines"]


def _number(root: Path, path: Path, spec: dict) -> bool:
  text = path.read_text(encoding="utf-8").strip()
  plain = all(c in "0123456789.-+" for c in text)  # neither 1_0 nor nan nor 1e3
  return plain and math.isclose(float(text), spec["value"], rel_tol=0, abs_tol=0.005)


def _moved(root: Path, path: Path, spec: dict) -> bool:
  """The same file at the new place, and nothing at the old one."""
  return _text(root, path, spec) and not os.path.lexists(root / spec["source"])


def _json(root: Path, path: Path, spec: dict) -> bool:
  return json.loads(path.read_text(encoding="utf-8")) == spec["value"]


def _tar(root: Path, path: Path, spec: dict) -> bool:
  """A compressed tar of exactly these files."""
  import gzip
  import io
  import tarfile

  found = {}
  with gzip.open(path) as stream:
    raw = stream.read(MAX_BYTES)
  with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
    for member in archive:
      if member.isfile():
        name = os.path.normpath(member.name)
        data = archive.extractfile(member).read()
        found[name] = hashlib.sha256(data).hexdigest()
      elif not member.isdir():
        return False
  return found == spec["members"]


def _database(root: Path, path: Path, spec: dict) -> bool:
  import sqlite3

  uri = f"file:{path.resolve()}?mode=ro&immutable=1"
  connection = sqlite3.connect(uri, uri=True)
  connection.set_progress_handler(lambda: 1, QUERY_STEPS)
  query = f"select * from {spec['table']} order by 1"
  rows = connection.execute(query).fetchmany(len(spec["rows"]) + 1)
  connection.close()
  return [list(row) for row in rows] == spec["rows"]


def _script(root: Path, path: Path, spec: dict) -> bool:
  """The script reads its source: with one row more it gives the new result.

  Everything that this touches is put back afterwards.
  """
  import shutil
  import subprocess

  source, result = root / spec["source"], root / spec["result"]
  if not (_plain(source) and _plain(result)):
    return False
  saved = {place: place.read_bytes() for place in (source, result)}
  source.write_bytes(saved[source] + spec["row"].encode())
  result.unlink()
  quiet = subprocess.DEVNULL
  process = subprocess.Popen(
      ["python3", str(path)],
      cwd=root,
      stdin=quiet,
      stdout=quiet,
      stderr=quiet,
      start_new_session=True,
  )
  try:
    code = process.wait(SCRIPT_SECONDS)
    return code == 0 and _right(root, {**spec, "kind": "number", "path": spec["result"]})
  except subprocess.TimeoutExpired:
    return False
  finally:
    try:
      os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
      pass
    process.wait()
    for place, data in saved.items():
      if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
      place.unlink(missing_ok=True)  # a pipe would block, a link lead elsewhere
      place.parent.mkdir(parents=True, exist_ok=True)
      place.write_bytes(data)


def _digest(path: Path) -> str | None:
  """SHA-256 of a file; None where there is no plain, small file."""
  if not _plain(path):
    return None
  return hashlib.sha256(path.read_bytes()).hexdigest()


_KINDS = {
    "text": _text,
    "number": _number,
    "moved": _moved,
    "json": _json,
    "tar": _tar,
    "database": _database,
    "script": _script,
}
