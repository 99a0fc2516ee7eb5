"""A trace of some steps, for TensorBoard's profiler or Perfetto."""

from __future__ import annotations

import re
from pathlib import Path

import jax

from clawgym_jax.contracts.errors import UserError


class Profile:
  """Traces the steps FIRST-LAST of `steps`, "" for none, into `folder`."""

  def __init__(self, steps: str, folder: Path):
    self._first, self._last = parse(steps)
    self._folder = folder
    self._tracing = False

  def before(self, step: int) -> None:
    """To be called before step `step` begins."""
    if self._first <= step <= self._last and not self._tracing:
      options = jax.profiler.ProfileOptions()
      options.python_tracer_level = 0  # it would slow what is traced
      jax.profiler.start_trace(str(self._folder), profiler_options=options)
      self._tracing = True

  def after(self, step: int) -> None:
    """To be called when its results are there."""
    if self._tracing and step >= self._last:
      self.stop()

  def stop(self) -> None:
    if self._tracing:
      jax.profiler.stop_trace()
      self._tracing = False


def parse(steps: str) -> tuple[int, int]:
  """First and last step of "FIRST-LAST"; (1, 0) of ""."""
  if not steps:
    return 1, 0
  match = re.fullmatch(r"(\d+)-(\d+)", steps)
  if match is None or not 0 < int(match[1]) <= int(match[2]):
    raise UserError(
        f"--profile_steps={steps} is no range of steps: write FIRST-LAST, like 10-12"
    )
  return int(match[1]), int(match[2])
