"""The sandboxes' server, built from server.c and its parts once per source and machine.

The result is static and needs nothing inside a sandbox or an image. Building
is atomic: many processes may ask at once, and each gets a whole file.
`python -m sandbox.backends.build` builds it and prints where it is.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from clawgym_jax.contracts.errors import UserError

_SOURCE = Path(__file__).with_name("server.c")
_FLAGS = ("-O2", "-static", "-Wall", "-Wextra", "-Werror", "-Wl,--gc-sections", "-s")
_SECONDS = 120.0


@cache
def server_binary() -> Path:
  """The server; `UserError` with what to install where it can't be built."""
  parts = sorted(_SOURCE.with_suffix("").glob("*.c"))
  source = b"".join(part.read_bytes() for part in (_SOURCE, *parts))
  kind = " ".join((*_FLAGS, platform.machine())).encode()
  name = f"server-{hashlib.sha256(source + kind).hexdigest()[:16]}"
  folder = _folder()
  path = folder / name
  if path.exists():
    return path
  compiler = shutil.which("cc") or shutil.which("gcc")
  if compiler is None:
    raise UserError("sandboxes need a C compiler, once; apt install gcc libc6-dev")
  made = folder / f".{name}.{secrets.token_hex(8)}"
  try:
    built = subprocess.run(
        [compiler, *_FLAGS, "-o", made, _SOURCE],
        capture_output=True, text=True, timeout=_SECONDS,
    )  # fmt: skip
    if built.returncode != 0:
      raise UserError(
          f"{compiler} could not build the sandboxes' server ({built.stderr[-500:]});"
          " apt install gcc libc6-dev"
      )
    made.chmod(0o755)
    os.replace(made, path)
  except subprocess.TimeoutExpired:
    raise UserError(f"{compiler} did not end within {_SECONDS:g} s") from None
  finally:
    made.unlink(missing_ok=True)
  return path


def _folder() -> Path:
  """A directory of the caller's that keeps the result."""
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
    raise UserError(f"{folder} is another user's: set XDG_CACHE_HOME to a place of yours")
  return folder


if __name__ == "__main__":
  print(server_binary())
