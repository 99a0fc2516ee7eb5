"""Child processes that stop with their parent, and what they cost.

`run` waits for a command; `serving` keeps a server for a `with` block. Each
child leads a process group of its own, which is stopped as a whole: SIGINT
first, so that it saves what it has, then SIGKILL after `grace` seconds. A
child is tethered, so where this process is killed it stops by itself. A
command that needs a server stops when the server does. Linux only: memory is
read from /proc.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clawgym_jax import tethered
from clawgym_jax.contracts.errors import UserError

_TELL_SECONDS = 5.0


@dataclass(frozen=True)
class Server:
  """A running child that answers at `url`."""

  url: str
  name: str
  process: subprocess.Popen
  log: Path

  def check(self) -> None:
    """`UserError` with its last words if it is no longer running."""
    if self.process.poll() is not None:
      raise UserError(
          f"{self.name} ended while it was needed (status {self.process.returncode}):"
          f" {_last_lines(self.log)}. Run the same command again to continue"
      )


def run(
    module: str,
    flags: dict[str, object],
    log: Path,
    *,
    needs: Server | None = None,
    grace: float = 60.0,
) -> None:
  """Runs a module to its end; progress goes to standard error, the rest to `log`.

  Raises `UserError` if it fails or the server that it `needs` ends, and
  KeyboardInterrupt after it was stopped.
  """
  with open(log, "ab") as out:
    child = _start(module, flags, stdout=out)
  try:
    while True:
      with contextlib.suppress(subprocess.TimeoutExpired):
        status = child.wait(1.0)
        break
      if needs is not None:
        needs.check()
  except BaseException:
    _stop(child, grace)
    raise
  if status == 130:
    raise KeyboardInterrupt
  if status:
    raise UserError(
        f"{module} ended with status {status}; what it said is above and in"
        f" {log}. Mend that and run the same command again: finished work is kept"
    )


@contextlib.contextmanager
def serving(
    module: str,
    flags: dict[str, object],
    ready_file: Path,
    log: Path,
    *,
    deadline: float = 300.0,
) -> Iterator[Server]:
  """Starts a server that writes {"url": ...} to the flag --ready_file."""
  ready_file.unlink(missing_ok=True)
  with open(log, "ab") as out:
    child = _start(
        module, {**flags, "ready_file": ready_file}, stdout=out, stderr=out
    )
  try:
    end = time.monotonic() + deadline
    while not ready_file.exists():
      if child.poll() is not None:
        raise UserError(f"{module} did not start: {_last_lines(log)}")
      if time.monotonic() > end:
        raise UserError(
            f"{module} was not ready after {deadline:.0f} s: {_last_lines(log)}"
        )
      time.sleep(0.1)
    url = json.loads(ready_file.read_text())["url"]
    yield Server(url, module, child, log)
  finally:
    _stop(child, grace=10.0)
    ready_file.unlink(missing_ok=True)


class PeakMemory:
  """Seconds, and the largest sum of proportional set sizes of this process's tree.

  `record` gets {"seconds", "peak_bytes"} every few seconds, so that a kill
  loses no more than those, and at the end.
  """

  def __init__(self, record: Callable[[dict[str, float]], None], period: float = 1.0):
    self.peak = 0
    self._record = record
    self._started = time.monotonic()
    self._stop = threading.Event()
    self._thread = threading.Thread(target=self._watch, args=(period,), daemon=True)

  def __enter__(self) -> PeakMemory:
    self._thread.start()
    return self

  def __exit__(self, *_: object) -> None:
    self._stop.set()
    self._thread.join()
    self._tell()

  def _watch(self, period: float) -> None:
    told = self._started
    while not self._stop.wait(period):
      self.peak = max(self.peak, sum(_pss(pid) for pid in _tree(os.getpid())))
      if time.monotonic() - told > _TELL_SECONDS:
        told = time.monotonic()
        self._tell()

  def _tell(self) -> None:
    seconds = time.monotonic() - self._started
    self._record({"seconds": seconds, "peak_bytes": self.peak})


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


def _start(module: str, flags: dict[str, object], **streams: object) -> subprocess.Popen:
  return subprocess.Popen(
      tethered.command(module, **flags),
      start_new_session=True,
      stdin=subprocess.DEVNULL,
      **streams,
  )


def _last_lines(log: Path, count: int = 5) -> str:
  lines = log.read_text(errors="replace").strip().splitlines()[-count:]
  return " | ".join(lines) or f"it said nothing; see {log}"
