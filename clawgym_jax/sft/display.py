"""What a run shows while it trains.

On a terminal a bar with the last step's figures beside it; elsewhere a line every
15 seconds, the first and the last step included.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from clawgym_jax.sft.session import shown

_SECONDS = 15.0


class Display:
  """Shows steps; a context."""

  def __init__(self, steps: int, *, done: int):
    self._first = done
    self._began = time.monotonic()
    self._said = -_SECONDS
    self._terminal = sys.stderr.isatty()
    self._bar = Progress(
        TextColumn("sft"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
        console=Console(stderr=True),
        disable=not self._terminal,
    )
    self._task = self._bar.add_task("sft", total=steps, completed=done, figures="")

  def __enter__(self) -> Display:
    self._bar.start()
    return self

  def __exit__(self, *error: object) -> None:
    self._bar.stop()

  def step(self, line: dict[str, Any], steps: int) -> None:
    """Shows a step's metrics; `steps` are what the run is to have by now."""
    done, figures, now = line["step"], _figures(line), time.monotonic()
    self._bar.update(self._task, total=steps, completed=done, figures=figures)
    last = done >= steps
    if not self._terminal and (last or now - self._said >= _SECONDS):
      self._said = now
      each = (now - self._began) / (done - self._first)
      left = time.strftime("%H:%M:%S", time.gmtime(each * (steps - done)))
      print(f"sft {done}/{steps}, {left} left, {figures}", file=sys.stderr)


def _figures(line: dict[str, Any]) -> str:
  mfu = line["mfu"]
  parts = [
      f"loss {shown(line['loss'], 4)}",
      f"{shown(line['tokens_per_second'], 0)} tokens/s",
      "" if mfu is None else f"MFU {100 * mfu:.1f} %",
      f"lr {line['learning_rate']:.1e}",
      f"data wait {100 * line['data_wait_share']:.1f} %",
      f"{line['memory_bytes'] / 2**30:.1f} GiB",
      "" if "eval_loss" not in line else f"eval {shown(line['eval_loss'], 4)}",
  ]
  return ", ".join(part for part in parts if part)
