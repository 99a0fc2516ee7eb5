"""The driver of a run: it claims attempts, has them made, and completes them.

One driver holds the pool; who makes the attempts never sees it. An attempt is
held by a lease that is renewed while it is worked on; if it was given to
somebody else meanwhile, what was done for it is thrown away. At most
`concurrency` are in flight, and no more are claimed. Whatever ends the loop,
every attempt is stopped and what was held is given back.

What is no fault of the policy is unscored with its cause, and the pool plans
it again within its bounds. A sample that lost two workers is next made alone
in one, so that what kills workers uses up its own attempts and no others'.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.trajectory import Trajectory, unscored
from clawgym_jax.pool import Attempt, AttemptGone, Pool
from sandbox.fleet.attempt import AttemptResult
from sandbox.fleet.executor import Executor, WorkerLost
from sandbox.fleet.executor.base import unseen
from sandbox.fleet.job import job_of
from sandbox.harnesses import Harness

LEASE_SECONDS = 60.0
POLL_SECONDS = 0.25
LOST_TOGETHER = 2  # workers that a sample may lose in the company of others


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
    executor: Executor,
    gateway: Sessions | None = None,
    follow: bool = False,
    finished: Callable[[Trajectory], None] = lambda trajectory: None,
    **settings: Any,
) -> None:
  """Returns when `channel` is worked off; with `follow`, once it is closed too.

  `harness` is made anew by its name where it works. `settings` are those of a
  job: turns, run_id, backend, model. `executor` is open, and stays so. `finished`
  is called with each trajectory as it is completed, without steps.
  """
  slots = asyncio.Semaphore(concurrency)
  held: dict[str, asyncio.Task[None]] = {}
  ended = asyncio.Event()  # an attempt has, since it was last looked at
  losses: Counter[tuple[str, int]] = Counter()

  async def feed(group: asyncio.TaskGroup) -> None:
    while True:
      await slots.acquire()
      ended.clear()
      attempt = await _whole(pool.claim, channel, owner, LEASE_SECONDS)
      if attempt is not None:
        held[attempt.trajectory_id] = group.create_task(one(attempt))
        continue
      slots.release()
      if await _whole(_drained, pool, channel, follow):
        return
      with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ended.wait(), POLL_SECONDS)

  async def one(attempt: Attempt) -> None:
    started = time.time()
    try:
      try:
        task_id, result = await work(attempt)
      finally:
        del held[attempt.trajectory_id]
      trajectory = _trajectory(attempt, task_id, harness, result, started)
      if await _whole(pool.complete, trajectory):
        finished(trajectory)
    except AttemptGone:
      pass
    finally:
      slots.release()
      ended.set()

  async def work(attempt: Attempt) -> tuple[str, AttemptResult]:
    directory = Path(attempt.task_dir)
    try:
      job = await asyncio.to_thread(job_of, directory, harness.name)
    except (RecordError, OSError) as error:
      return directory.name, unseen(error)
    job = replace(job, **settings)
    if harness.needs_model:
      url, key = await asyncio.to_thread(gateway.register, attempt.trajectory_id)
      job = replace(job, base_url=url, api_key=key)
    sample = (attempt.group_id, attempt.sample_index)
    try:
      result = await executor.run(job, alone=losses[sample] >= LOST_TOGETHER)
    except WorkerLost as error:
      losses[sample] += 1
      result = AttemptResult(unscored(f"worker_lost: {error}"))
    return job.task.id, result

  async def renew() -> None:
    while True:
      await asyncio.sleep(LEASE_SECONDS / 4)
      for name, task in list(held.items()):
        try:
          await _whole(pool.renew, name, owner, LEASE_SECONDS)
        except AttemptGone:
          if held.get(name) is task:  # else it has just been completed
            task.cancel()

  try:
    async with asyncio.TaskGroup() as group:
      renewal = group.create_task(renew())
      await feed(group)
      renewal.cancel()
  except ExceptionGroup as errors:
    raise errors.exceptions[0] from None
  finally:
    pool.release(owner)


async def _whole(call: Callable[..., Any], *arguments: Any) -> Any:
  """`call` in a thread; it ends before this does, also where this is cancelled."""
  running = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
  try:
    return await asyncio.shield(running)
  except asyncio.CancelledError:
    await asyncio.gather(running, return_exceptions=True)
    raise


def _drained(pool: Pool, channel: str, follow: bool) -> bool:
  return (pool.closed(channel) or not follow) and pool.pending(channel) == 0


def _trajectory(
    attempt: Attempt,
    task_id: str,
    harness: Harness,
    result: AttemptResult,
    started: float,
) -> Trajectory:
  metadata = {
      "stop": result.stop,
      "model_calls": result.model_calls,
      "changes": result.changes,
      "seconds": result.seconds,
      "span": [round(started, 3), round(time.time(), 3)],  # unix seconds
  }
  if result.reports:
    metadata["reports"] = result.reports
    metadata["duplicates"] = result.duplicates
  if result.bad_reports:
    metadata["bad_reports"] = result.bad_reports
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
