"""Work beside tables: files, programs, repositories, and what services were told.

Part of check.py (see `checker`): standard library only. What one kind of work
needs alone is imported with it.
"""

import contextlib
import hashlib
import io
import os
import re
from pathlib import Path

from data_gen.compose.checks.files import MAX_BYTES, digest_of, read_bytes
from data_gen.compose.checks.files import read_json, read_text

SCRIPT_SECONDS = 10.0


def _lines(root: Path, spec: dict) -> dict[str, bool]:
  """The file has these lines, blanks at their ends aside."""
  text = read_text(root / spec["path"]).rstrip()
  return {"right": [line.rstrip() for line in text.split("\n")] == spec["lines"]}


def _exact(root: Path, spec: dict) -> dict[str, bool]:
  """Each file is there, to the byte, and what is `gone` is not."""
  there = all(digest_of(root / p) == d for p, d in spec["files"].items())
  gone = not any(os.path.lexists(root / p) for p in spec["gone"])
  return {"right": there and gone}


def _moved(root: Path, spec: dict) -> dict[str, bool]:
  """Each file is at its new place, as it was, and no longer at the old one."""
  there = all(read_text(root / p) == f["text"] for p, f in spec["files"].items())
  gone = not any(os.path.lexists(root / f["from"]) for f in spec["files"].values())
  return {"right": there, "gone": there and gone}


def _document(root: Path, spec: dict) -> dict[str, bool]:
  """A JSON file has this value, however it is laid out."""
  return {"right": read_json(read_text(root / spec["path"])) == spec["value"]}


def _script(root: Path, spec: dict) -> dict[str, bool]:
  """A Python program prints this for an input that the agent never saw, and still
  has the lines that were to stay; it runs as a copy, in a folder of its own."""
  import signal
  import subprocess
  import tempfile
  import threading

  with tempfile.TemporaryDirectory() as folder:
    program, given = Path(folder) / "program.py", Path(folder) / "given.txt"
    program.write_bytes(read_bytes(root / spec["path"]))
    given.write_text(spec["input"])
    process = subprocess.Popen(
        ["python3", "-I", "-S", "-B", str(program), str(given)], cwd=folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    stop = threading.Timer(SCRIPT_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
    stop.start()
    try:
      said = process.stdout.read(MAX_BYTES)
    finally:
      stop.cancel()
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
      process.wait()
  right = said.decode().strip() == spec["output"]
  lines = iter(read_text(root / spec["path"]).splitlines())
  return {"right": right, "rest": right and all(k in lines for k in spec["keeps"])}


def _archive(root: Path, spec: dict) -> dict[str, bool]:
  """A .zip or .tar.gz of exactly these files, by their names in it."""
  import gzip
  import tarfile
  import zipfile

  data, found = read_bytes(root / spec["path"]), {}
  if spec["path"].endswith(".zip"):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
      for entry in archive.infolist():
        if not entry.is_dir():
          with archive.open(entry) as file:
            found[os.path.normpath(entry.filename)] = file.read(MAX_BYTES)
  else:
    with gzip.open(io.BytesIO(data)) as stream:
      raw = io.BytesIO(stream.read(MAX_BYTES))
    with tarfile.open(fileobj=raw, mode="r:") as archive:
      for member in archive:
        if member.isfile():
          found[os.path.normpath(member.name)] = archive.extractfile(member).read()
  hashes = {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
  right = hashes == spec["members"]
  gone = not any(os.path.lexists(root / p) for p in spec["gone"])
  return {"right": right, "gone": right and gone}


def _git(root: Path, spec: dict) -> dict[str, bool]:
  """A branch's commit holds these files, and so does the folder; it has this
  message and these parents."""
  repository = root / spec["path"] / ".git"
  commit = _object(repository, _branch(repository, spec["branch"]))
  top, _, message = commit.decode().partition("\n\n")
  fields = [line.split(" ", 1) for line in top.split("\n")]
  parents = [value for name, value in fields if name == "parent"]
  right = _tree(repository, dict(fields)["tree"]) == spec["tree"]
  right = right and all(
      digest_of(repository.parent / p) == d for p, d in spec["tree"].items()
  )
  wanted = [_branch(repository, b) if len(b) < 40 else b for b in spec["parents"]]
  right = right and sorted(parents) == sorted(wanted)
  head = read_text(repository / "HEAD").strip()
  return {
      "right": right,
      "message": right and spec["message"] in ("", message.strip()),
      "on_branch": right and head == f"ref: refs/heads/{spec['on']}",
  }


def _branch(repository: Path, name: str) -> str:
  return read_text(repository / "refs" / "heads" / name).strip()


def _object(repository: Path, name: str) -> bytes:
  import zlib

  if not re.fullmatch("[0-9a-f]{40}", name):
    raise ValueError("no object's name")
  data = read_bytes(repository / "objects" / name[:2] / name[2:])
  return zlib.decompressobj().decompress(data, MAX_BYTES).partition(b"\0")[2]


def _tree(repository: Path, name: str, under: str = "") -> dict[str, str]:
  """The files of a tree: path -> SHA-256 of the contents."""
  data, found = _object(repository, name), {}
  while data:
    mode, _, rest = data.partition(b" ")
    entry, _, rest = rest.partition(b"\0")
    path, blob, data = under + entry.decode(), rest[:20].hex(), rest[20:]
    if mode == b"40000" and path.count("/") < 20:
      found |= _tree(repository, blob, f"{path}/")
    else:
      found[path] = hashlib.sha256(_object(repository, blob)).hexdigest()
  return found


def _sent(reports: list, spec: dict) -> dict[str, bool]:
  """Each message went out once, as asked."""
  sent = [_message(r) for r in reports if r["action"] == "send"]
  right = all(_message(m) in sent for m in spec["messages"])
  return {"right": right, "once": right and len(sent) == len(spec["messages"])}


def _message(message: dict) -> list:
  files = sorted((f["name"], f["sha256"]) for f in message["attachments"])
  body = [line.rstrip() for line in message["body"].rstrip().split("\n")]
  return [message["channel"], sorted(message["to"]), message["subject"], body, files]


def _event(reports: list, spec: dict) -> dict[str, bool]:
  """The calendar was told this last: what it wants of an event, times as times."""
  done = [r for r in reports if r["action"] == spec["action"]]
  right = any(
      (spec["id"] in ("", r["id"])) and _holds(r["event"], spec["event"]) for r in done
  )
  return {"right": right, "once": right and len(done) == 1}


def _holds(event: dict, wanted: dict) -> bool:
  return all(
      _time(event[key]) == _time(value) if key in ("start", "end")
      else sorted(event[key]) == sorted(value) if isinstance(value, list)
      else event[key] == value
      for key, value in wanted.items()
  )  # fmt: skip


def _time(text: str):
  """The point in time; one without a zone is in UTC."""
  import datetime

  found = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
  return found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)


def _job(reports: list, spec: dict) -> dict[str, bool]:
  """The scheduler was told of this job."""
  done = [r for r in reports if r["action"] in spec["actions"]]
  right = any(
      spec["id"] in ("", r["id"])
      and all(r["job"][key] == value for key, value in spec["job"].items())
      for r in done
  )
  return {"right": right, "once": right and len(done) == 1}


# kind -> (judge, the names of its checks)
WORK = {
    "lines": (_lines, ("right",)),
    "exact": (_exact, ("right",)),
    "moved": (_moved, ("right", "gone")),
    "document": (_document, ("right",)),
    "script": (_script, ("right", "rest")),
    "archive": (_archive, ("right", "gone")),
    "git": (_git, ("right", "message", "on_branch")),
    "sent": (_sent, ("right", "once")),
    "event": (_event, ("right", "once")),
    "job": (_job, ("right", "once")),
}
