"""Child processes that never outlive their parent, and what they cost.

`run` waits for a command; `serving` keeps a server for a `with` block. Each
child leads a process group of its own, which is stopped as a whole: SIGINT
first, so that it saves what it has, then SIGKILL after `grace` seconds.
Linux only: memory is read from /proc.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from clawgym_jax.contracts.errors import UserError


def run(command: list[str], log: Path, *, grace: float = 60.0) -> None:
  """Runs `command` to its end; progress goes to standard error, the rest to `log`.

  Raises `UserError` if it fails, and KeyboardInterrupt after it was stopped.
  """
  with open(log, "ab") as out:
    child = subprocess.Popen(
        command, stdout=out, start_new_session=True, stdin=subprocess.DEVNULL
    )
    try:
      status = child.wait()
    except BaseException:
      _stop(child, grace)
      raise
  if status == 130:
    raise KeyboardInterrupt
  if status:
    raise UserError(
        f"{_name(command)} ended with status {status}; what it said is above and in"
        f" {log}. Mend that and run the same command again: finished work is kept"
    )


@contextlib.contextmanager
def serving(
    command: list[str], ready_file: Path, log: Path, *, deadline: float = 300.0
) -> Iterator[str]:
  """Starts a server that writes {"url": ...} to `ready_file`; yields the URL."""
  ready_file.unlink(missing_ok=True)
  with open(log, "ab") as out:
    child = subprocess.Popen(
        [*command, f"--ready_file={ready_file}"],
        stdout=out,
        stderr=out,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )
  try:
    end = time.monotonic() + deadline
    while not ready_file.exists():
      if child.poll() is not None:
        raise UserError(f"{_name(command)} did not start: {_last_lines(log)}")
      if time.monotonic() > end:
        raise UserError(
            f"{_name(command)} was not ready after {deadline:.0f} s: {_last_lines(log)}"
        )
      time.sleep(0.1)
    yield json.loads(ready_file.read_text())["url"]
  finally:
    _stop(child, grace=10.0)
    ready_file.unlink(missing_ok=True)


class PeakMemory:
  """The largest sum of proportional set sizes of this process's tree, in bytes."""

  def __init__(self, period: float = 1.0):
    self.peak = 0
    self._stop = threading.Event()
    self._thread = threading.Thread(target=self._watch, args=(period,), daemon=True)

  def __enter__(self) -> PeakMemory:
    self._thread.start()
    return self

  def __exit__(self, *_: object) -> None:
    self._stop.set()
    self._thread.join()

  def _watch(self, period: float) -> None:
    while not self._stop.wait(period):
      self.peak = max(self.peak, sum(_pss(pid) for pid in _tree(os.getpid())))


def _tree(root: int) -> list[int]:
  parents = {}
  for entry in Path("/proc").iterdir():
    if entry.name.isdigit():
      with contextlib.suppress(OSError, IndexError, ValueError):
        stat = (entry / "stat").read_text()
        parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
  tree, found = [root], {root}
  for pid in tree:
    for child in (c for c, parent in parents.items() if parent == pid):
      if child not in found:
        found.add(child)
        tree.append(child)
  return tree


def _pss(pid: int) -> int:
  try:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
      if line.startswith("Pss:"):
        return int(line.split()[1]) * 1024
  except (OSError, ValueError):
    pass  # it ended, or it is not ours to read
  return 0


def _stop(child: subprocess.Popen, grace: float) -> None:
  for number, wait in ((signal.SIGINT, grace), (signal.SIGKILL, 10.0)):
    with contextlib.suppress(ProcessLookupError):
      os.killpg(child.pid, number)
    with contextlib.suppress(subprocess.TimeoutExpired):
      child.wait(wait)
      if number == signal.SIGINT:
        with contextlib.suppress(ProcessLookupError):
          os.killpg(child.pid, signal.SIGKILL)  # what it left in its group
      return


def _name(command: list[str]) -> str:
  return command[command.index("-m") + 1] if "-m" in command else command[0]


def _last_lines(log: Path, count: int = 5) -> str:
  lines = log.read_text(errors="replace").strip().splitlines()[-count:]
  return " | ".join(lines) or f"it said nothing; see {log}"


def python(module: str, **flags: object) -> list[str]:
  """The command line of one of the project's programs."""
  return [
      sys.executable,
      "-m",
      module,
      *(f"--{name}={value}" for name, value in flags.items()),
  ]
