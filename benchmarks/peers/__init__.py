"""Other projects' trainers, each in an environment of its own.

`python_of(name)` makes .cache/peers/NAME from the pins in NAME.txt, once and again
when they change, with uv and the Python that the project needs. NAME_sft.py beside
it is a program of that environment: it imports nothing of this project, reads its
settings as JSON from standard input and prints what it measured as a JSON line.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.runs import only_writer

PYTHONS = {"maxtext": "3.12", "trl": "3.11", "tunix": "3.12"}
_HERE = Path(__file__).resolve().parent
_CACHE = _HERE.parents[1] / ".cache" / "peers"
_PATIENCE = 1800.0  # seconds for another process that makes the environment


def python_of(name: str) -> str:
  """The interpreter of a peer's environment, which it makes if need be.

  Raises:
    UserError: there is no such Python here, or the packages can't be had.
  """
  pins = _HERE / f"{name}.txt"
  folder = _CACHE / name
  python = folder / "bin" / "python"
  stamp = folder / "installed"
  with only_writer(_CACHE / f"{name}.making", "installation of a peer", _PATIENCE):
    wanted = hashlib.sha256(pins.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
      return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"installing {name} into {folder}, once", file=sys.stderr)
    _uv("venv", "-q", "--python", _interpreter(PYTHONS[name]), str(folder))
    places = os.environ.get("PIP_FIND_LINKS", "").split()  # uv has its own name for it
    where = [f"--find-links={place}" for place in places]
    _uv(
        "pip", "install", "-q", "--python", str(python), "--no-deps",
        "--torch-backend=cpu", *where, "-r", str(pins),
    )  # fmt: skip
    stamp.write_text(wanted)
  return str(python)


def measured(name: str, settings: dict[str, Any], timeout: float) -> dict[str, Any]:
  """What NAME_sft.py prints for `settings`; `UserError` with its last words."""
  command = [python_of(name), str(_HERE / f"{name}_sft.py")]
  clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "XLA_FLAGS")}
  done = subprocess.run(
      command, input=json.dumps(settings), capture_output=True, text=True,
      timeout=timeout, cwd=_CACHE, env=clean | {"JAX_PLATFORMS": "cpu"},
  )  # fmt: skip
  if done.returncode:
    raise UserError(f"{name} failed: {done.stderr[-3000:]}")
  return json.loads(done.stdout.splitlines()[-1])


def _interpreter(version: str) -> str:
  """A Python of that version: this one, one on the path, or pyenv's."""
  if sys.version.startswith(f"{version}."):
    return sys.executable
  script = f"command -v python{version}"
  if shutil.which("pyenv"):  # its shims answer for what is not installed
    script = f'echo "$(pyenv prefix "$(pyenv latest {version})")/bin/python"'
  done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
  found = done.stdout.strip()
  if not found or not Path(found).exists():
    raise UserError(f"there is no Python {version} here, which this peer needs")
  return found


def _uv(*arguments: str) -> None:
  done = subprocess.run(
      [sys.executable, "-m", "uv", *arguments], capture_output=True, text=True
  )
  if done.returncode:
    raise UserError(f"uv {' '.join(arguments)} failed: {done.stderr.strip()[-2000:]}")
