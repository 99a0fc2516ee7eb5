"""Steps and trajectories for the pool's tests."""

from __future__ import annotations

import time
from collections.abc import Callable

from clawgym_jax.contracts.trajectory import Outcome, Step, Trajectory, scored
from clawgym_jax.pool import Attempt


def step(number: int, *, version: int = 0, tokens: int = 4, text: str = "") -> Step:
  """The `number`th step of a chain."""
  return Step(
      step_id=f"s{number}",
      parent_id=f"s{number - 1}" if number else None,
      messages=[{"role": "user", "content": f"{text}{number}"}],
      response={"role": "assistant", "content": "ok"},
      finish_reason="stop",
      prompt_ids=[number, 1, 2],
      response_ids=list(range(tokens)),
      logprobs=[-0.1] * tokens,
      untempered_logprobs=[-0.2] * tokens,
      policy_versions=[version] * tokens,
  )


def trajectory(attempt: Attempt, outcome: Outcome | None = None) -> Trajectory:
  """What a rollout hands in for `attempt`; its steps are in the pool."""
  return Trajectory(
      id=attempt.trajectory_id,
      task_id="t",
      group_id=attempt.group_id,
      sample_index=attempt.sample_index,
      attempt=attempt.attempt,
      harness="test",
      steps=[],
      outcome=outcome or scored(1.0),
  )


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
  """Returns once `condition` holds; an error after `seconds`."""
  deadline = time.monotonic() + seconds
  while not condition():
    if time.monotonic() > deadline:
      raise TimeoutError("the condition never held")
    time.sleep(0.01)
