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
  """Notes that directories of runs are made in the folder `place`."""
  text = os.fsencode(place.absolute())
  folder = kept_folder() / _PLACES
  note = folder / hashlib.sha256(text).hexdigest()[:16]
  if note.exists():
    return
  folder.mkdir(exist_ok=True)
  part = folder / f".{note.name}.{secrets.token_hex(4)}"
  part.write_bytes(text)
  part.replace(note)


def places() -> Iterator[Path]:
  """Every folder noted that is still there, and this process's own for such things."""
  own = Path(tempfile.gettempdir()).absolute()
  yield own
  for note in sorted((kept_folder() / _PLACES).glob("[!.]*")):
    with contextlib.suppress(FileNotFoundError):  # another reaper was quicker
      place = Path(os.fsdecode(note.read_bytes()))
      if not place.is_dir():
        note.unlink()
      elif place != own:
        yield place
