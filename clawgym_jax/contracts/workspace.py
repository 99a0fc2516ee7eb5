"""How the files of a workspace look to the agent: the same on every machine.

All are of one time, and a mode depends on what is in the file alone, so that a
listing that an agent makes says nothing of who wrote the task, when and where.
Sandboxes show files so whatever a folder on the host has; one that has it
already (`settle`) needs no copy for that.
"""

from __future__ import annotations

import os
from pathlib import Path

TIME = 1_577_836_800  # 2020-01-01, unix seconds; zip can't write times before 1980
FOLDER_MODE = 0o755


def file_mode(start: bytes) -> int:
  """Of a file that begins with `start`: scripts can be run."""
  return 0o755 if start.startswith(b"#!") else 0o644


def settle(folder: Path) -> None:
  """Gives `folder` and all in it this time and these modes; follows no link."""
  for parent, _, files in os.walk(folder, topdown=False):
    for name in files:
      path = os.path.join(parent, name)
      if not os.path.islink(path):
        with open(path, "rb") as file:
          os.chmod(path, file_mode(file.read(2)))
        os.utime(path, (TIME, TIME))
    os.chmod(parent, FOLDER_MODE)
    os.utime(parent, (TIME, TIME))
