"""The folder of this user that outlives runs: the server's program, and where runs
have had directories of their own, so that `sandbox.reap` looks there whatever
TMPDIR it has itself."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from clawgym_jax.contracts.errors import UserError

_PLACES = "places"  # a file each, which holds a path


def kept_folder() -> Path:
  """It, there and writable; `UserError` where another user has it."""
  try:  # a user without an entry has no home
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(caches) / "clawgym_jax"
    folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):
      return folder
  except (OSError, RuntimeError):
    pass
  folder = Path(tempfile.gettempdir()) / f"clawgym-server-{os.geteuid()}"
  folder.mkdir(mode=0o700, exist_ok=True)
  info = folder.lstat()
  if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
    raise UserError(
        f"{folder} is another user's: set XDG_CACHE_HOME to a place of yours"
    )
  return folder


def remember_place(place: Path) -> None:
  """Notes that directories of runs are made in the folder `place`.

  Where that can't be noted, as on a full disk, they are found all the same by who has
  this TMPDIR too, and no run ends for it.
  """
  text = os.fsencode(place.absolute())
  folder = kept_folder() / _PLACES
  note = folder / _name(text)
  part = folder / f".{note.name}.{secrets.token_hex(4)}"
  with contextlib.suppress(OSError):
    if note.is_file() and note.read_bytes() == text:
      return
    folder.mkdir(exist_ok=True)
    try:
      part.write_bytes(text)
      part.replace(note)
    finally:
      part.unlink(missing_ok=True)


def places() -> Iterator[Path]:
  """Every folder noted that is still there, and this process's own for such things.

  A note of one that is gone, or that is damaged, is removed.
  """
  own = Path(tempfile.gettempdir()).absolute()
  yield own
  for note in sorted((kept_folder() / _PLACES).glob("[!.]*")):
    with contextlib.suppress(OSError):  # another was quicker; it can't be reached now
      text = note.read_bytes()
      place = Path(os.fsdecode(text))
      if note.name != _name(text) or not _is_there(place):
        note.unlink()
      elif place != own:
        yield place


def _name(text: bytes) -> str:
  return hashlib.sha256(text).hexdigest()[:16]


def _is_there(place: Path) -> bool:
  """Whether it is a folder; `OSError` where that can't be seen."""
  try:
    return stat.S_ISDIR(place.stat().st_mode)
  except (FileNotFoundError, NotADirectoryError):
    return False
