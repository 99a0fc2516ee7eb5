"""The commands of the pages of docs/, read out of them and run as a reader would."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
  """The fenced `sh` blocks of docs/`page`, in order."""
  found = _BLOCK.findall((ROOT / "docs" / page).read_text())
  assert found, f"docs/{page} has no commands"
  return found


def run_block(block: str, folder: Path, *, timeout: float = 300) -> None:
  """Runs one block in `folder`; its first command that fails is an error.

  `python` is this one, and the repository's packages are importable from there.
  """
  python = folder / ".bin" / "python"
  python.parent.mkdir(exist_ok=True)
  # Not a link: Python finds its packages beside the name it is called by.
  python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
  python.chmod(0o755)
  shell = subprocess.Popen(
      ["sh", "-e", "-c", block],
      cwd=folder,
      env=os.environ
      | {
          "PATH": f"{python.parent}:{os.environ['PATH']}",
          "PYTHONPATH": str(ROOT),
      },
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      start_new_session=True,
  )
  try:
    said, _ = shell.communicate(timeout=timeout)
    assert shell.returncode == 0, f"{block}\n{said}"
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(shell.pid, signal.SIGKILL)  # what a block that failed left running
