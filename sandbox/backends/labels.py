"""Whose a sandbox is: a label in the command line of its processes.

A label names the run, the controller (its PID namespace, process id and start
time, since process ids are used again) and when the sandbox's life is over. A
cgroup or directory that belongs to a run has a label and a number as its name.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from sandbox.backends.kept import remember_place

PREFIX = "clawgym-sandbox"
_OVER_SECONDS = 120.0  # a sandbox ends itself when it expires

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Label:
  """See the module's docstring; `expires` in unix seconds."""

  run_id: str
  namespace: str
  pid: int
  started: int
  expires: int

  def orphaned(self) -> bool:
    """Whether the controller is gone. Where this process can't see it (it is, or
    was, in another PID namespace), whether the sandbox's life is well over."""
    if self.namespace != _namespace():
      return time.time() > self.expires + _OVER_SECONDS
    return process_start(self.pid) != self.started

  @classmethod
  def parse(cls, text: str) -> Self | None:
    """The label that `text` is, or None."""
    parts = text.split(":")
    if len(parts) not in (6, 7) or parts[0] != PREFIX:
      return None
    try:
      return cls(parts[1], parts[2], int(parts[3]), int(parts[4]), int(parts[5]))
    except ValueError:
      return None


def label(run_id: str, lifetime_seconds: float) -> str:
  """The label of a sandbox that this process starts now."""
  pid = os.getpid()
  expires = int(time.time() + lifetime_seconds)
  name = re.sub("[^A-Za-z0-9_.-]", "_", run_id)[:80] or "run"
  return f"{PREFIX}:{name}:{_namespace()}:{pid}:{_own_start(pid)}:{expires}"


def numbered(mark: str) -> str:
  """A name with this label that no other of this process has."""
  return f"{mark}:{next(_numbers)}"


def run_directory(run_id: str, lifetime_seconds: float = 30 * 86400.0) -> Path:
  """A new directory for a run's files; `sandbox.reap` removes it once the
  controller is gone. Whoever asked for it removes it before."""
  place = Path(tempfile.gettempdir())
  remember_place(place)
  path = place / numbered(label(run_id, lifetime_seconds))
  path.mkdir(mode=0o700)
  return path


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
  prefix = f"{PREFIX}:".encode()
  for name in os.listdir("/proc"):
    if not name.isdigit():
      continue
    try:
      with open(f"/proc/{name}/cmdline", "rb") as file:
        line = file.read()
    except OSError:
      continue
    if prefix not in line:
      continue
    for text in line.decode(errors="replace").split("\0")[::-1]:
      mark = Label.parse(text.removeprefix("--label="))
      if mark is not None:
        found[int(name)] = mark
        break
  return found


@cache
def _namespace() -> str:
  return os.readlink("/proc/self/ns/pid").strip("pid:[]")


@cache
def _own_start(pid: int) -> int:
  return process_start(pid)
