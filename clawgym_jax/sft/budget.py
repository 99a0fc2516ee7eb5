"""How many steps fit into a run's seconds, decided once and then kept."""

from __future__ import annotations

import time

_WARM_STEPS = 2  # compile and first touch: not measured
_MEASURED_STEPS = 3
_RESERVE = 0.03  # of the budget, for the last save


class Budget:
  """`steps` of a run; with `max_seconds` > 0, lowered to what fits.

  `settled` is the final number, None while it is still being measured.
  """

  def __init__(self, steps: int, max_seconds: float):
    self.steps = steps
    self.settled = None if max_seconds else steps
    self._max_seconds = max_seconds
    self._started = time.monotonic()
    self._durations: list[float] = []

  def settle(self, steps: int | None) -> None:
    """Takes over what an earlier life of the run had settled, if it had."""
    if steps is not None:
      self.steps = self.settled = steps

  def step_took(self, seconds: float, done: int) -> None:
    """Counts a step; `done` are all steps of the run so far."""
    if self.settled is not None:
      return
    self._durations.append(seconds)
    measured = self._durations[_WARM_STEPS:]
    if len(measured) < _MEASURED_STEPS:
      return
    left = self._max_seconds * (1 - _RESERVE) - (time.monotonic() - self._started)
    fit = int(left / (sum(measured) / len(measured)))
    self.settle(max(done, min(self.steps, done + fit)))
