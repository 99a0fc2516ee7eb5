"""Compiles the pinned requirements from pyproject.toml, for Python 3.11 to 3.13.

Pins stay as they are unless a range in pyproject.toml no longer admits them,
so a fresh run changes nothing: `compiled` gives what the files should hold.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from clawgym_jax import cli
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_atomic

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    "requirements.txt": [],
    "requirements-test.txt": ["--extra", "test", "--constraint", "requirements.txt"],
}


def compiled(name: str) -> str:
  """The text that the requirements file `name` should hold; needs the registry."""
  with tempfile.TemporaryDirectory() as folder:
    output = Path(folder) / name
    if (ROOT / name).exists():
      shutil.copy(ROOT / name, output)
    command = [
        sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal",
        "--python-version", "3.11", "--custom-compile-command", "make requirements",
        *FILES[name], "--output-file", str(output), "pyproject.toml",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
      raise UserError(f"uv could not compile {name}: {done.stderr.strip()}")
    return output.read_text()


def main() -> dict[str, str]:
  for name in FILES:
    write_atomic(ROOT / name, compiled(name))
  return {name: "compiled" for name in FILES}


if __name__ == "__main__":
  cli.run(main)
