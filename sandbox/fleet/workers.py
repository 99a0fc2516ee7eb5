"""Works off a pool's attempts, a fixed number at a time, in one process.

An attempt is held by a lease that is renewed while it is worked on; if it was
given to somebody else meanwhile, what was done here is thrown away. Whatever
ends the loop, every sandbox is stopped and what was held is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.task import load_task
from clawgym_jax.contracts.trajectory import Trajectory, unscored
from clawgym_jax.pool import Attempt, AttemptGone, Pool
from sandbox.fleet.attempt import AttemptResult, safe_attempt
from sandbox.harnesses import Harness

LEASE_SECONDS = 60.0
POLL_SECONDS = 0.25


class Sessions(Protocol):
  """What opens a recorded session for an attempt; `gateway.Gateway` does."""

  def register(self, trajectory_id: str) -> tuple[str, str]:
    """The base URL and the API key for the attempt's harness."""


async def run_attempts(
    pool: Pool,
    channel: str,
    harness: Harness,
    *,
    owner: str,
    concurrency: int,
    gateway: Sessions | None = None,
    turns: int | None = None,
    run_id: str = "run",
    backend: str = "bubblewrap",
    follow: bool = False,
    finished: Callable[[Trajectory], None] = lambda trajectory: None,
) -> None:
  """Returns when `channel` is worked off; with `follow`, once it is closed too.

  `finished` is called with each trajectory as it is completed, without steps.
  """

  async def worker() -> None:
    while True:
      attempt = await asyncio.to_thread(pool.claim, channel, owner, LEASE_SECONDS)
      if attempt is None:
        if await asyncio.to_thread(_drained, pool, channel, follow):
          return
        await asyncio.sleep(POLL_SECONDS)
        continue
      trajectory = await one(attempt)
      if trajectory is not None and await asyncio.to_thread(pool.complete, trajectory):
        finished(trajectory)

  async def one(attempt: Attempt) -> Trajectory | None:
    try:
      task = load_task(Path(attempt.task_dir))
    except (RecordError, OSError) as error:
      result = AttemptResult(unscored(f"bad_task: {error}"))
      return _trajectory(attempt, Path(attempt.task_dir).name, harness, result)
    try:
      async with _held(pool, attempt, owner):
        url, key = "", ""
        if harness.needs_model:
          url, key = await asyncio.to_thread(gateway.register, attempt.trajectory_id)
        result = await safe_attempt(
            task,
            harness,
            base_url=url,
            api_key=key,
            turns=turns,
            run_id=run_id,
            backend=backend,
        )
    except AttemptGone:
      return None
    return _trajectory(attempt, task.id, harness, result)

  try:
    async with asyncio.TaskGroup() as group:
      for _ in range(concurrency):
        group.create_task(worker())
  except* Exception as errors:
    raise errors.exceptions[0] from None
  finally:
    pool.release(owner)


def _drained(pool: Pool, channel: str, follow: bool) -> bool:
  return (pool.closed(channel) or not follow) and pool.pending(channel) == 0


@contextlib.asynccontextmanager
async def _held(pool: Pool, attempt: Attempt, owner: str) -> AsyncIterator[None]:
  """Renews the lease meanwhile; `AttemptGone` once somebody else has it."""
  body = asyncio.current_task()
  lost: list[AttemptGone] = []

  async def renew() -> None:
    while True:
      await asyncio.sleep(LEASE_SECONDS / 4)
      try:
        await asyncio.to_thread(
            pool.renew, attempt.trajectory_id, owner, LEASE_SECONDS
        )
      except AttemptGone as error:
        lost.append(error)
        body.cancel()
        return

  renewal = asyncio.create_task(renew())
  try:
    yield
  except asyncio.CancelledError:
    if lost and body.uncancel() == 0:
      raise lost[0] from None
    raise
  finally:
    renewal.cancel()


def _trajectory(
    attempt: Attempt, task_id: str, harness: Harness, result: AttemptResult
) -> Trajectory:
  metadata = {
      "stop": result.stop,
      "model_calls": result.model_calls,
      "changes": result.changes,
      "seconds": result.seconds,
  }
  if not harness.needs_model:  # nothing else records what was said
    metadata["transcript"] = result.transcript
  return Trajectory(
      id=attempt.trajectory_id,
      task_id=task_id,
      group_id=attempt.group_id,
      sample_index=attempt.sample_index,
      attempt=attempt.attempt,
      harness=harness.name,
      steps=[],
      outcome=result.outcome,
      final_message=result.final_message,
      metadata=metadata,
  )
