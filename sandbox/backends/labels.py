"""Whose a sandbox is: a label in the command line of its processes.

A label names the run, the controller (its PID namespace, process id and start
time, since process ids are used again) and when the sandbox's life is over.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_PREFIX = "clawgym-sandbox"


@dataclass(frozen=True)
class Label:
  """See the module's docstring; `expires` in unix seconds."""

  run_id: str
  namespace: str
  pid: int
  started: int
  expires: int

  def orphaned(self) -> bool:
    """Whether the controller is gone; False where this process can't tell."""
    return self.namespace == _namespace() and process_start(self.pid) != self.started

  @classmethod
  def parse(cls, text: str) -> Self | None:
    """The label that `text` is, or None."""
    parts = text.split(":")
    if len(parts) != 6 or parts[0] != _PREFIX:
      return None
    try:
      return cls(parts[1], parts[2], int(parts[3]), int(parts[4]), int(parts[5]))
    except ValueError:
      return None


def label(run_id: str, lifetime_seconds: float) -> str:
  """The label of a sandbox that this process starts now."""
  pid = os.getpid()
  expires = int(time.time() + lifetime_seconds)
  name = run_id.replace(":", "_")
  return f"{_PREFIX}:{name}:{_namespace()}:{pid}:{process_start(pid)}:{expires}"


def process_start(pid: int) -> int:
  """When `pid` started, in clock ticks since boot; 0 if there is no such process."""
  try:
    stat = Path(f"/proc/{pid}/stat").read_bytes()
  except OSError:
    return 0
  return int(stat.rpartition(b")")[2].split()[19])


def labelled() -> dict[int, Label]:
  """Process id -> label of every sandbox process that can be seen from here."""
  found = {}
  for entry in Path("/proc").iterdir():
    if not entry.name.isdigit():
      continue
    try:
      args = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
      continue
    for text in args[::-1]:
      mark = Label.parse(text)
      if mark is not None:
        found[int(entry.name)] = mark
        break
  return found


def _namespace() -> str:
  return os.readlink("/proc/self/ns/pid").strip("pid:[]")
