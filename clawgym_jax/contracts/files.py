"""Writing so that a reader sees the old file or the new one, never a part.

`write_atomic` survives kill -9 at any point: the bytes are on the disk before
the name points to them. `append_line` acknowledges a line only once it is on
the disk; `read_lines` drops a torn last line, which was never acknowledged.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError


@contextlib.contextmanager
def room_for(what: Path | str) -> Iterator[None]:
  """Makes a full disk, met while writing `what`, a `UserError` that names it."""
  try:
    yield
  except (OSError, ValueError) as error:  # tensorstore's is a ValueError
    if getattr(error, "errno", 0) != errno.ENOSPC and "No space" not in str(error):
      raise
    raise UserError(
        f"no space left for {what}: free some and run the same command again"
    ) from error


def require_room(folder: Path, *, free: int = 256 << 20, inodes: int = 1024) -> None:
  """`UserError` unless the disk of `folder` has that many bytes and inodes left.

  For folders into which work spools; asked before it starts.
  """
  disk = os.statvfs(folder)
  left = disk.f_bavail * disk.f_frsize
  if left < free:
    raise UserError(
        f"{folder} has {left >> 20} MiB left, of {free >> 20} needed to work in; free"
        " some or choose another (TMPDIR=…, --out=…)"
    )
  if disk.f_files and disk.f_favail < inodes:  # 0 where inodes have no bound
    raise UserError(
        f"{folder} has {disk.f_favail} inodes left, of {inodes} needed to work in;"
        " remove files or choose another (TMPDIR=…, --out=…)"
    )


def inside(name: str) -> bool:
  """Whether the relative path `name` stays below where it is put."""
  path = PurePosixPath(name)
  return bool(path.name) and not path.is_absolute() and ".." not in path.parts


def user_cache() -> Path:
  """This user's folder for what can be made again; RuntimeError where he has no home."""
  caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
  return Path(caches) / "clawgym_jax"


def write_atomic(path: Path, data: bytes | str | Iterable[str]) -> None:
  """Replaces `path` with `data`, creating its folder; pieces are written as they come."""
  path.parent.mkdir(parents=True, exist_ok=True)
  pieces = (data,) if isinstance(data, bytes | str) else data
  handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
  try:
    with room_for(path), os.fdopen(handle, "wb") as file:
      for piece in pieces:
        file.write(piece.encode() if isinstance(piece, str) else piece)
      file.flush()
      os.fsync(file.fileno())
    os.chmod(name, 0o644)
    os.replace(name, path)
  except BaseException:
    Path(name).unlink(missing_ok=True)
    raise


def write_json(path: Path, value: Any) -> None:
  """Writes `value` as readable JSON, atomically; NaN is an error."""
  write_atomic(path, json_text.dump(value, indent=1) + "\n")


def append_line(path: Path, value: Any) -> None:
  """Appends `value` as one JSON line and returns once it is on the disk."""
  path.parent.mkdir(parents=True, exist_ok=True)
  line = json_text.dump(value).encode() + b"\n"
  with room_for(path), open(path, "ab+") as file:
    if file.tell() and not _ends_with_newline(file):
      line = b"\n" + line  # a torn line stays alone on its own line
    file.write(line)
    file.flush()
    os.fsync(file.fileno())


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
  """Yields the JSON lines of `path`; a torn line is skipped, an absent file empty."""
  if not path.exists():
    return
  with open(path, "rb") as file:
    for line in file:
      try:
        yield json_text.parse(line)
      except ValueError:
        continue


def _ends_with_newline(file: Any) -> bool:
  file.seek(-1, os.SEEK_END)
  last = file.read(1)
  file.seek(0, os.SEEK_END)
  return last == b"\n"
