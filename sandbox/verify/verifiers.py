"""Judges attempts of any tasks as they come: as `verify` does, cheaper on the whole.

A task that comes again, with checks of our own that nobody changed, is judged in
a warm sandbox of its own, see `many.Verifier`; all else in a fresh one. No attempt
waits for the judging of another: two of one task at once take two sandboxes. What
is idle is kept for as long as this is open, up to a bound.
"""

from __future__ import annotations

import asyncio
from typing import Any

from clawgym_jax.contracts.task import Task
from clawgym_jax.contracts.trajectory import Outcome
from sandbox.verify.state import State
from sandbox.verify.imported import verify
from sandbox.verify.many import Verifier

_MOST_IDLE = 16  # sandboxes that wait, each the size of a Python and its imports
_MOST_SEEN = 10_000  # tasks that are remembered


class Verifiers:
  """Use it as `async with`, or call `close` in the end."""

  def __init__(self) -> None:
    self._seen: dict[tuple, None] = {}  # in the order in which they came
    self._idle: list[tuple[tuple, Verifier]] = []  # the one used last comes last

  async def __aenter__(self) -> Verifiers:
    return self

  async def __aexit__(self, *exception: object) -> None:
    await self.close()

  async def judge(self, task: Task, state: State, **settings: Any) -> Outcome:
    """The outcome that `verify` gives; `settings` are `verify`'s that are no state."""
    key = (task.root, *sorted(settings.items()))
    if key not in self._seen:
      self._seen[key] = None
      if len(self._seen) > _MOST_SEEN:
        del self._seen[next(iter(self._seen))]
      return await verify(
          task,
          state.snapshot,
          state.final_message,
          state.transcript,
          reports=state.reports,
          **settings,
      )
    verifier = self._taken(key) or Verifier(task, **settings)
    try:
      outcome = await verifier.judge(state)
    finally:
      self._idle.append((key, verifier))
    while len(self._idle) > _MOST_IDLE:
      await self._idle.pop(0)[1].close()
    return outcome

  def _taken(self, key: tuple) -> Verifier | None:
    for at in reversed(range(len(self._idle))):
      if self._idle[at][0] == key:
        return self._idle.pop(at)[1]
    return None

  async def close(self) -> None:
    """Ends the sandboxes that wait."""
    idle, self._idle = self._idle, []
    await asyncio.gather(*(verifier.close() for _, verifier in idle))
