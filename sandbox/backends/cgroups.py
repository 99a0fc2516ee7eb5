"""A cgroup for each sandbox, where this process may make one.

Version 1 needs the pids and the memory hierarchy, version 2 a cgroup that hands
both controllers on; the sandbox's own is made below the nearest such cgroup
above this process. Its name is its label, so that `sandbox.reap` finds what a
killed controller left. Nothing is asked of the kernel twice: where no cgroup
can be made, that is found out once.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from sandbox.backends.labels import PREFIX, label, numbered

_CONTROLLERS = ("pids", "memory")
_SPARE_PROCESSES = 16  # bwrap, the server, commands that are about to be refused
_SPARE_MEMORY = 64 << 20  # page tables, pipes, inodes
_SOCKET_MEMORY = 64 << 20  # of TCP and UDP, where that isn't in the memory's bound
_REMOVE_SECONDS = 2.0


@dataclass(frozen=True)
class _Place:
  """Where sandboxes' cgroups are made: one folder, or one per controller."""

  version: int
  pids: str
  memory: str


class Cgroup:
  """One sandbox's. `joins` are the files in which its first process writes 0."""

  def __init__(self, place: _Place, name: str, processes: int, memory: int):
    self.version = place.version
    self._folders = [f"{at}/{name}" for at in dict.fromkeys((place.pids, place.memory))]
    self._memory = f"{place.memory}/{name}"
    self._killed = 0
    one = place.version == 1
    limit = "memory.limit_in_bytes" if one else "memory.max"
    swap = "memory.memsw.limit_in_bytes" if one else "memory.swap.max"
    entry = "tasks" if one else "cgroup.procs"
    self._events = "memory.oom_control" if one else "memory.events"
    self.joins = [f"{folder}/{entry}" for folder in self._folders]
    try:
      for folder in self._folders:
        os.mkdir(folder)
      _write(f"{place.pids}/{name}/pids.max", processes + _SPARE_PROCESSES)
      _write(f"{self._memory}/{limit}", memory + _SPARE_MEMORY)
      with contextlib.suppress(FileNotFoundError):  # where the kernel counts swap
        _write(f"{self._memory}/{swap}", memory + _SPARE_MEMORY if one else 0)
      with contextlib.suppress(FileNotFoundError):  # version 1 counts these apart
        if one:  # and what the kernel has for them is the whole host's
          _write(f"{self._memory}/memory.kmem.tcp.limit_in_bytes", _SOCKET_MEMORY)
    except OSError:
      self.remove()
      raise

  def memory_ran_out(self) -> bool:
    """Whether the kernel killed a process for memory since this was asked."""
    before = self._killed
    with contextlib.suppress(OSError):
      with open(f"{self._memory}/{self._events}", "rb") as file:
        for line in file:
          if line.startswith(b"oom_kill "):
            self._killed = int(line.split()[1])
    return self._killed > before

  def remove(self) -> bool:
    """Removes it; False where it still holds processes."""
    return all([remove(folder) for folder in self._folders])


def make(name: str, processes: int, memory: int) -> Cgroup | None:
  """A new cgroup with these bounds, or None where none can be made."""
  place = _place()
  if place is None:
    return None
  try:
    return Cgroup(place, name, processes, memory)
  except OSError:
    return None


def remove(folder: str) -> bool:
  """Removes a cgroup without processes; True if it is gone."""
  try:
    os.rmdir(folder)
  except FileNotFoundError:
    return True
  except OSError:
    return False
  return True


def left() -> Iterator[tuple[str, str]]:
  """(folder, name) of every sandbox's cgroup on this machine."""
  for root in _hierarchies().values():
    waiting = [root]
    while waiting:
      with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
        for entry in entries:
          if not entry.is_dir(follow_symlinks=False):
            continue
          if entry.name.startswith(f"{PREFIX}:"):
            yield entry.path, entry.name
          else:
            waiting.append(entry.path)


def end(folder: str) -> bool:
  """Kills what is in a cgroup and removes it; False if that takes too long."""
  deadline = time.monotonic() + _REMOVE_SECONDS
  while not remove(folder):
    if time.monotonic() > deadline:
      return False
    with contextlib.suppress(OSError, ValueError):
      with open(f"{folder}/cgroup.procs") as file:
        for pid in file.read().split():
          if pid != "0":  # of another PID namespace
            os.kill(int(pid), 9)
    time.sleep(0.005)
  return True


@cache
def _hierarchies() -> dict[str, str]:
  """Controller -> where its hierarchy is mounted; "" names version 2's."""
  found: dict[str, str] = {}
  with contextlib.suppress(OSError), open("/proc/self/mounts") as file:
    for line in file:
      _, where, kind, options, *_ = line.split()
      if kind == "cgroup2":
        found.setdefault("", where)
      elif kind == "cgroup":
        for name in set(options.split(",")) & set(_CONTROLLERS):
          found.setdefault(name, where)
  return found


@cache
def _place() -> _Place | None:
  """Where sandboxes' cgroups can be made, tried out once."""
  roots, own, candidates = _hierarchies(), _own_paths(), []
  if all(name in roots and name in own for name in _CONTROLLERS):
    nearest = [next(_upwards(roots[n], own[n]), None) for n in _CONTROLLERS]
    if all(nearest):
      candidates.append(_Place(1, *nearest))
  if "" in roots:
    for folder in _upwards(roots[""], own.get("", "/")):
      if _hands_on(folder):
        candidates.append(_Place(2, folder, folder))
        break
  for place in candidates:
    with contextlib.suppress(OSError):
      Cgroup(place, numbered(label("probe", 0.0)), 1, 1 << 20).remove()
      return place
  return None


def _own_paths() -> dict[str, str]:
  """Controller -> this process's cgroup below its mount; "" names version 2's."""
  own: dict[str, str] = {}
  with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
    for line in file:
      _, names, path = line.rstrip("\n").split(":", 2)
      own |= {name: path for name in names.split(",")}
  return own


def _upwards(root: str, path: str) -> Iterator[str]:
  """Writable cgroups from `path` up to the root of the mount."""
  parts = [part for part in path.split("/") if part not in ("", "..")]
  for count in range(len(parts), -1, -1):
    folder = "/".join((root, *parts[:count]))
    if os.access(folder, os.W_OK) and os.path.isdir(folder):
      yield folder


def _hands_on(folder: str) -> bool:
  """Whether cgroups below this one of version 2 get both controllers."""
  if _has_both(f"{folder}/cgroup.subtree_control"):
    return True
  if not _has_both(f"{folder}/cgroup.controllers"):
    return False
  try:
    _write(f"{folder}/cgroup.subtree_control", "+pids +memory")
  except OSError:  # it has processes of its own
    return False
  return True


def _has_both(path: str) -> bool:
  try:
    with open(path) as file:
      return set(_CONTROLLERS) <= set(file.read().split())
  except OSError:
    return False


def _write(path: str, value: int | str) -> None:
  fd = os.open(path, os.O_WRONLY)
  try:
    os.write(fd, str(value).encode())
  finally:
    os.close(fd)
