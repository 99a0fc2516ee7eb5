"""A run's folder: what it is a run of, its metrics, and how it is stopped.

The folder belongs to one set of settings and data; another one is refused by
name, and so is a second run at the same time. Metrics are one JSON line a step,
with None for what is not finite, and after a resume exactly the steps that the
restored state holds. SIGTERM and Ctrl-C are answered between two steps, by an
exit that the shell can tell from a failure.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import math
import signal
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import jax

from clawgym_jax.configs import base
from clawgym_jax.configs.base import Logging
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import append_line, read_lines, write_atomic
from clawgym_jax.contracts.runs import only_writer, same_run

# What the same run may be continued with: it changes no step that is done.
_FREE = (
    "out", "max_seconds", "steps", "saving.", "mesh.", "model.remat", "model.layers",
    "evaluation.", "logging.", "spike", "data.workers", "data.cache", "data.max_bad",
)  # fmt: skip
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
  """`metrics.jsonl`: one line a step, in order, each step once; and `others`.

  Of the processes of a run the first one writes.
  """

  def __init__(
      self,
      path: Path,
      *,
      done: int,
      others: Collection[Callable[[dict[str, Any]], None]] = (),
  ):
    """Drops the lines of steps that the state restored at `done` doesn't hold."""
    self.path = path
    self._others = others
    self._writes = jax.process_index() == 0
    kept = [line for line in read_lines(path) if line.get("step", 0) <= done]
    if path.exists() and self._writes:
      write_atomic(path, "".join(json_text.dump(line) + "\n" for line in kept))
    self.lines = kept

  def write(self, line: dict[str, Any]) -> dict[str, Any]:
    """Adds a step's line and returns it as written: not finite is None."""
    line = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in line.items()
    }
    self.lines.append(line)
    if self._writes:
      append_line(self.path, line)
      for other in self._others:
        other(line)
    return line


@contextlib.contextmanager
def loggers(
    config: Logging, out: Path, settings: dict[str, Any]
) -> Iterator[list[Callable[[dict[str, Any]], None]]]:
  """What else takes the lines of a run, by its `config`; closed with the block.

  `settings` are told to those who keep them.
  """
  found: list[Callable[[dict[str, Any]], None]] = []
  with contextlib.ExitStack() as stack:
    if config.tensorboard and jax.process_index() == 0:
      writers = _optional("tensorboardX", "tensorboard", "logging.tensorboard")
      writer = stack.enter_context(
          writers.SummaryWriter(str(out / "tensorboard"), write_to_disk=True)
      )
      found.append(functools.partial(_to_tensorboard, writer))
    if config.wandb and jax.process_index() == 0:
      wandb = _optional("wandb", "wandb", "logging.wandb")
      run = wandb.init(
          project=config.wandb,
          dir=str(out),
          id=hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:16],
          resume="allow",
          config=settings,
      )
      stack.callback(run.finish)
      found.append(lambda line: run.log(_numbers(line), step=line["step"]))
    yield found


def _optional(module: str, extra: str, key: str) -> Any:
  try:
    return importlib.import_module(module)
  except ImportError as error:
    raise UserError(
        f"config.{key} needs {module}, which is not installed ({error}): pip install"
        f" 'clawgym-jax[{extra}]', or leave it out"
    ) from error


def _to_tensorboard(writer: Any, line: dict[str, Any]) -> None:
  for name, value in _numbers(line).items():
    writer.add_scalar(name, value, line["step"])
  writer.flush()


def _numbers(line: dict[str, Any]) -> dict[str, float]:
  return {
      name: value
      for name, value in line.items()
      if isinstance(value, int | float) and name != "step"
  }


def shown(value: float | None, digits: int) -> str:
  """A metric as progress shows it."""
  return "-" if value is None else f"{value:.{digits}f}"


class StopSignals:
  """Remembers SIGTERM and Ctrl-C while its block runs.

  The first one is answered where the block calls `raise_if_requested` or, told by
  another process of the run, `leave`; a second one acts at once.
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
    """Leaves if there was a signal."""
    if self.requested:
      self.leave()

  def leave(self) -> None:
    """KeyboardInterrupt after Ctrl-C, exit status 143 after SIGTERM or none here."""
    if self._received == signal.SIGINT:
      raise KeyboardInterrupt
    sys.exit(128 + signal.SIGTERM)

  def _receive(self, number: int, frame: types.FrameType | None) -> None:
    self._received = number
    self._restore()
    print("\nstopping as soon as all is saved; again to stop at once", file=sys.stderr)

  def _restore(self) -> None:
    for number, handler in self._before.items():
      signal.signal(number, handler)
    self._before.clear()
