"""The sandboxes' server, built from server.c and its parts once per source and machine.

The result is static and needs nothing inside a sandbox or an image. Building
is atomic: many processes may ask at once, and each gets a whole file.
`python -m sandbox.backends.build` builds it and prints where it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import secrets
import shutil
import subprocess
import time
from functools import lru_cache
from pathlib import Path

from clawgym_jax.contracts.errors import UserError
from sandbox.backends.kept import kept_folder

_SOURCE = Path(__file__).with_name("server.c")
_FLAGS = ("-O2", "-static", "-Wall", "-Wextra", "-Werror", "-Wl,--gc-sections", "-s")
_SECONDS = 120.0
_DAY = 86400.0
_UNUSED_DAYS = 30


def server_binary() -> Path:
  """The server; `UserError` with what to install where it can't be built."""
  return _server(int(time.monotonic() // _DAY))


@lru_cache(maxsize=1)
def _server(day: int) -> Path:
  """It, asked for anew each day: its time says that it is in use."""
  parts = sorted(_SOURCE.with_suffix("").glob("*.c"))
  source = b"".join(part.read_bytes() for part in (_SOURCE, *parts))
  kind = " ".join((*_FLAGS, platform.machine())).encode()
  name = f"server-{hashlib.sha256(source + kind).hexdigest()[:16]}"
  folder = kept_folder()
  path = folder / name
  with contextlib.suppress(FileNotFoundError):
    os.utime(path)
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
    _remove_unused(folder)
  except subprocess.TimeoutExpired:
    raise UserError(f"{compiler} did not end within {_SECONDS:g} s") from None
  finally:
    made.unlink(missing_ok=True)
  return path


def _remove_unused(folder: Path) -> None:
  """Removes servers of other sources that nobody has asked for in `_UNUSED_DAYS`, and
  what killed builds left. One that runs needs its file no more."""
  for path in (*folder.glob("server-*"), *folder.glob(".server-*.*")):
    with contextlib.suppress(FileNotFoundError):  # another was quicker
      if time.time() - path.stat().st_mtime > _UNUSED_DAYS * _DAY:
        path.unlink()


if __name__ == "__main__":
  print(server_binary())
