"""Removes what dead runs left behind: `python -m sandbox.reap`.

The kernel kills a sandbox with its controller, so what is left is mostly a
cgroup, a directory with sockets, or a process caught while it started. All of
them carry the label of their controller; what one that lives made is never
touched, whatever run it is of, and what one made that can't be seen from here
only when its time is over. Directories are looked for wherever this user's runs
have made some, whatever TMPDIR they had. The command looks through the containers
of a docker daemon too where there is one, and pods with --backend=kubernetes?….
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import time
from pathlib import Path
from typing import Any

from clawgym_jax import cli
from sandbox.backends import cgroups, flags, split
from sandbox.backends.kept import places
from sandbox.backends.labels import PREFIX, Label, labelled

_DOCKER_SOCKET = "/var/run/docker.sock"
_SECONDS = 5.0  # for the killed to be gone


def reap() -> dict[str, int]:
  """Ends what is orphaned; counts processes killed, kept and refused, and the
  cgroups and directories removed."""
  counts = {"killed": 0, "kept": 0, "refused": 0, "cgroups": 0, "directories": 0}
  dying = []
  for pid, mark in labelled().items():
    if not mark.orphaned():
      counts["kept"] += 1
      continue
    try:
      os.kill(pid, signal.SIGKILL)
      counts["killed"] += 1
      dying.append(pid)
    except ProcessLookupError:
      continue
    except PermissionError:
      counts["refused"] += 1
  _await_end(dying)
  for folder, name in list(cgroups.left()):
    if _orphaned(name) and cgroups.end(folder):
      counts["cgroups"] += 1
  for place in places():
    with contextlib.suppress(OSError):  # it can't be read
      for path in place.glob(f"{PREFIX}:*"):
        counts["directories"] += _orphaned(path.name) and _remove(path)
  return counts


def _reap_containers() -> dict[str, int]:
  """As `docker.reap_containers`, which is loaded only where there may be a daemon."""
  if "DOCKER_HOST" not in os.environ and not os.path.exists(_DOCKER_SOCKET):
    return {}
  try:
    from sandbox.backends import docker
  except ModuleNotFoundError:  # its SDK is not installed
    return {}
  counts = docker.reap_containers()
  return {f"containers_{name}": count for name, count in counts.items()}


def _reap_pods(options: dict[str, str]) -> dict[str, int]:
  """As `kubernetes.reap_pods` of the cluster that the options name."""
  from sandbox.backends import kubernetes

  counts = asyncio.run(kubernetes.reap_pods(kubernetes.Cluster.parse(options)))
  return {f"pods_{name}": count for name, count in counts.items()}


def _orphaned(name: str) -> bool:
  mark = Label.parse(name)
  return mark is not None and mark.orphaned()


def _await_end(pids: list[int]) -> None:
  """Waits until the killed hold nothing any more; a zombie does not."""
  deadline = time.monotonic() + _SECONDS
  for pid in pids:
    while _alive(pid) and time.monotonic() < deadline:
      time.sleep(0.002)


def _alive(pid: int) -> bool:
  try:
    with open(f"/proc/{pid}/stat", "rb") as file:
      return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
  except OSError:
    return False


def _remove(path: Path) -> bool:
  """Removes a directory of this user's with all in it; False if it is not."""
  try:
    info = path.lstat()
  except FileNotFoundError:  # another was quicker
    return False
  if not stat.S_ISDIR(info.st_mode) or info.st_uid not in (os.geteuid(), 0):
    return False
  shutil.rmtree(path, ignore_errors=True)
  return not path.exists()


def main() -> dict[str, Any]:
  counts = reap() | _reap_containers()
  backend, options = split(flags.backend())
  if backend == "kubernetes":
    counts |= _reap_pods(options)
  print(
      f"{counts['killed']} processes of dead runs killed, {counts['kept']} of living"
      f" ones left alone, {counts['refused']} belong to another user;"
      f" {counts['cgroups']} cgroups and {counts['directories']} directories removed"
  )
  for kind in ("containers", "pods"):
    if f"{kind}_removed" in counts:
      print(
          f"{counts[f'{kind}_removed']} {kind} of dead runs removed,"
          f" {counts[f'{kind}_kept']} of living ones left alone,"
          f" {counts[f'{kind}_refused']} could not be removed"
      )
  return counts


if __name__ == "__main__":
  cli.run(main)
