"""A run's folder: what it is a run of, its metrics, and how it is stopped.

The folder belongs to one set of settings and data; another one is refused by
name, and so is a second run at the same time. Metrics are one JSON line a step,
with None for what is not finite, and after a resume exactly the steps that the
restored state holds. SIGTERM and Ctrl-C are answered between two steps, by an
exit that the shell can tell from a failure.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from clawgym_jax.configs import base
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import append_line, read_lines, write_atomic
from clawgym_jax.contracts.runs import only_writer, same_run

# What the same run may be continued with: it changes no step that is done.
_FREE = ("out", "max_seconds", "steps", "saving.")
_FREE += ("data.workers", "data.cache", "data.max_bad")
_SAVING_SECONDS = 60.0  # a run that was told to stop may still hold the folder


@contextlib.contextmanager
def claim_folder(config: Any, data: dict[str, Any]) -> Iterator[Path]:
  """Creates or reopens `config.out` for a run of `config` on `data`.

  `data` identifies what the run learns from; both must be as before. No other
  run can have the folder while the context is open.
  """
  if not config.out:
    raise UserError("the run has no folder: give --config.out=DIR")
  out = Path(config.out)
  with contextlib.ExitStack() as stack:
    if jax.process_index() == 0:  # one run may be many processes
      stack.enter_context(only_writer(out, "training run", _SAVING_SECONDS))
    identity = {
        key: value for key, value in base.keys(config).items()
        if not key.startswith(_FREE)
    }
    same_run(out / "run.json", identity | data)
    yield out


class Metrics:
  """`metrics.jsonl`: one line a step, in order, each step once."""

  def __init__(self, path: Path, *, done: int):
    """Drops the lines of steps that the state restored at `done` doesn't hold."""
    self.path = path
    kept = [line for line in read_lines(path) if line.get("step", 0) <= done]
    if path.exists():
      write_atomic(path, "".join(json_text.dump(line) + "\n" for line in kept))
    self.lines = kept

  def write(self, line: dict[str, Any]) -> dict[str, Any]:
    """Adds a step's line and returns it as written: not finite is None."""
    line = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in line.items()
    }
    append_line(self.path, line)
    self.lines.append(line)
    return line


def shown(value: float | None, digits: int) -> str:
  """A metric as progress shows it."""
  return "-" if value is None else f"{value:.{digits}f}"


class StopSignals:
  """Remembers SIGTERM and Ctrl-C while its block runs.

  The first one is answered where the block calls `raise_if_requested`; a
  second one acts at once.
  """

  def __init__(self) -> None:
    self._received: int | None = None
    self._before: dict[int, Any] = {}

  @property
  def requested(self) -> bool:
    return self._received is not None

  def __enter__(self) -> StopSignals:
    if threading.current_thread() is threading.main_thread():
      for number in (signal.SIGINT, signal.SIGTERM):
        self._before[number] = signal.signal(number, self._receive)
    return self

  def __exit__(
      self,
      kind: type[BaseException] | None,
      error: BaseException | None,
      trace: types.TracebackType | None,
  ) -> None:
    self._restore()

  def raise_if_requested(self) -> None:
    """KeyboardInterrupt after Ctrl-C, exit status 143 after SIGTERM."""
    if self._received == signal.SIGTERM:
      sys.exit(128 + signal.SIGTERM)
    if self._received is not None:
      raise KeyboardInterrupt

  def _receive(self, number: int, frame: types.FrameType | None) -> None:
    self._received = number
    self._restore()
    print("\nstopping as soon as all is saved; again to stop at once", file=sys.stderr)

  def _restore(self) -> None:
    for number, handler in self._before.items():
      signal.signal(number, handler)
    self._before.clear()
