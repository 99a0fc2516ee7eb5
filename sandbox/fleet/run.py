"""A whole run in a folder: plan, work off, write out; the same call resumes.

`OUT/run.json` says what the run is, `OUT/pool.db` (unless the pool is
elsewhere) what has been done, and at the end `OUT/trajectories.jsonl` holds
every planned sample once, with `OUT/summary.json` beside it. A second run in
the same folder at the same time is refused. Who makes the attempts is no part
of what the run is: it may be continued by another executor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawgym_jax import cli
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import require_room, write_atomic, write_json
from clawgym_jax.contracts.runs import only_writer, same_run
from clawgym_jax.contracts.task import list_tasks
from clawgym_jax.contracts.trajectory import Trajectory, to_record
from clawgym_jax.pool import Pool
from sandbox import gateway
from sandbox.backends import check_backend
from sandbox.fleet.driver import run_attempts
from sandbox.fleet.executor import Executor, open_executor
from sandbox.fleet.figures import Figures
from sandbox.gateway.upstream import Upstream
from sandbox.harnesses import Harness, load
from sandbox.reap import reap
from sandbox.verify.checks import is_check_error

_REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class RunSettings:
  """What to roll out.

  Attributes:
    tasks: a folder of task directories; None only with `follow`.
    upstream: URL of an engine or chat API, for harnesses that need a model.
    samples: attempts that count, per task.
    pool: `sqlite:///FILE`; None puts it into `out`.
    pins: temperature, top_p, max_tokens, seed that win over the harness.
    turns: replaces every task's own limit where given.
    follow: work off what others plan, until the channel is closed.
    model: to ask a chat API for; None takes the first it offers.
    executor, workers, per_node: who makes the attempts; see
      `executor.open_executor`.
    gateway_host: address of this machine by which workers reach it; None takes
      the executor's.
  """

  out: Path
  harness: str
  tasks: Path | None = None
  upstream: str | None = None
  samples: int = 1
  concurrency: int = 8
  pool: str | None = None
  channel: str = "eval"
  pins: dict[str, Any] = field(default_factory=dict)
  turns: int | None = None
  follow: bool = False
  backend: str = "bubblewrap"
  model: str | None = None
  executor: str = "local"
  workers: int = 1
  per_node: int | None = None
  gateway_host: str | None = None


def roll_out(settings: RunSettings) -> dict[str, Any]:
  """Makes or resumes the run; returns its summary, which counts every sample."""
  harness = load(settings.harness)
  if harness.needs_model and not settings.upstream:
    raise UserError(
        f"harness {harness.name} needs a model; give --upstream=URL"
        " (python -m clawgym_jax.serve starts one)"
    )
  executor = open_executor(
      settings.executor,
      concurrency=settings.concurrency,
      workers=settings.workers,
      per_node=settings.per_node,
      backend=settings.backend,
  )
  if settings.executor == "local":
    private = (settings.tasks, settings.out)
    check_backend(settings.backend, *(path for path in private if path is not None))
  if settings.gateway_host in ("0.0.0.0", "::", ""):
    raise UserError(
        f"--gateway_host={settings.gateway_host} is no address that others can call;"
        " give one of this machine"
    )
  planned = [] if settings.follow else _tasks(settings)
  upstream = None
  if harness.needs_model:  # before anything is written
    upstream = asyncio.run(
        gateway.connect(
            settings.upstream,
            model=settings.model,
            api_key=os.environ.get("UPSTREAM_API_KEY"),
        )
    )
  with only_writer(settings.out, "rollout"):
    require_room(settings.out)
    same_run(settings.out / "run.json", _identity(settings))
    reap()
    url = settings.pool or f"sqlite:///{settings.out.absolute() / 'pool.db'}"
    with contextlib.closing(Pool.open(url)) as pool:
      owner = f"{socket.gethostname()}:{settings.out.resolve()}"
      pool.release(owner)  # what this run held when it was killed
      for directory in planned:
        pool.add_group(
            f"{settings.channel}.{directory.name}",
            settings.channel,
            directory.resolve(),
            settings.samples,
        )
      asyncio.run(_work(settings, pool, owner, harness, executor, upstream))
      return _write(settings, pool)


async def _work(
    settings: RunSettings,
    pool: Pool,
    owner: str,
    harness: Harness,
    executor: Executor,
    upstream: Upstream | None,
) -> None:
  async with contextlib.AsyncExitStack() as stack:
    await stack.enter_async_context(executor)
    sessions = None
    if upstream is not None:
      host = settings.gateway_host or executor.host
      sessions = await stack.enter_async_context(
          gateway.start(pool, upstream, settings.pins, host=host)
      )
    report = stack.enter_context(
        contextlib.closing(_Report(pool, settings.channel, harness.name))
    )
    await run_attempts(
        pool,
        settings.channel,
        harness,
        owner=owner,
        concurrency=settings.concurrency,
        executor=executor,
        gateway=sessions,
        follow=settings.follow,
        finished=report.finished,
        turns=settings.turns,
        run_id=settings.out.name or "run",
        backend=settings.backend,
    )


class _Report:
  """The progress bar, and the first of each kind of cause in words."""

  def __init__(self, pool: Pool, channel: str, harness: str) -> None:
    self._pool = pool
    self._channel = channel
    planned, done = self._counts()
    self._bar = cli.progress(planned, f"rollout {harness}", done=done, unit="sample")
    self._seen: Counter[str] = Counter()
    self._total = 0.0
    self._judged = 0
    self._shown = time.monotonic()

  def finished(self, trajectory: Trajectory) -> None:
    outcome = trajectory.outcome
    if outcome.status == "unscored":
      kind = outcome.cause.split(":")[0]
      self._seen[kind] += 1
      if self._seen[kind] == 1:
        self._bar.write(
            f"unscored: {trajectory.task_id}: {outcome.cause}", file=self._bar.fp
        )
    else:
      self._judged += 1
      self._total += outcome.code
    if time.monotonic() - self._shown > _REPORT_SECONDS:  # counting takes time
      self._show()

  def close(self) -> None:
    self._show()
    self._bar.close()

  def _show(self) -> None:
    self._shown = time.monotonic()
    self._bar.total, done = self._counts()
    mean = f"{self._total / self._judged:.3f}" if self._judged else "-"
    self._bar.set_postfix(
        reward=mean, unscored=sum(self._seen.values()), refresh=False
    )
    self._bar.update(done - self._bar.n)

  def _counts(self) -> tuple[int, int]:
    """Samples planned, and those that are finished."""
    counts = self._pool.counts(self._channel)
    done = sum(counts[name] for name in ("scored", "truncated", "unscored"))
    return counts["samples"], done


def _write(settings: RunSettings, pool: Pool) -> dict[str, Any]:
  """Writes the results; `UserError` where not one sample could be judged."""
  causes: Counter[str] = Counter()
  rewards, unjudged, bad_reports = [], 0, 0
  figures = Figures()

  def lines() -> Iterator[str]:
    nonlocal unjudged, bad_reports
    for trajectory in pool.trajectories(settings.channel):
      bad_reports += trajectory.metadata.get("bad_reports", 0)
      figures.add(trajectory.metadata)
      if trajectory.outcome.status == "unscored":
        causes[trajectory.outcome.cause] += 1
      else:
        rewards.append(trajectory.outcome.code)
        unjudged += trajectory.outcome.awaits_rubric
      yield json_text.dump(to_record(trajectory)) + "\n"

  write_atomic(settings.out / "trajectories.jsonl", lines())
  counts = pool.counts(settings.channel)
  judged = counts["scored"] + counts["truncated"]
  summary = {
      "out": str(settings.out),
      "harness": settings.harness,
      "planned": counts["samples"],
      "scored": counts["scored"],
      "truncated": counts["truncated"],
      "unscored": counts["unscored"],
      "unscored_by_cause": dict(causes.most_common()),
      "check_errors": sum(n for cause, n in causes.items() if is_check_error(cause)),
      "mean_reward": sum(rewards) / judged if judged else None,
      "rubrics_to_judge": unjudged,
      "refilled": counts["refilled"],
      "dropped_attempts_by_cause": pool.dropped(settings.channel),
      "sampled_tokens": counts["sampled_tokens"],
      **({"bad_reports": bad_reports} if bad_reports else {}),
      **figures.summary(),
  }
  write_json(settings.out / "summary.json", summary)
  if causes and not judged:
    cause, times = causes.most_common(1)[0]
    raise UserError(
        f"none of {counts['samples']} samples could be judged; the cause of {times}:"
        f" {cause}. Mend that and use another --out"
    )
  return summary


def _tasks(settings: RunSettings) -> list[Path]:
  if settings.tasks is None:
    raise UserError("give --tasks=DIR, or --follow to work off what others plan")
  found = list_tasks(settings.tasks)
  if not found:
    raise UserError(
        f"{settings.tasks} holds no tasks (folders with a task.json);"
        " python -m data_gen.synthesize makes some"
    )
  return found


def _identity(settings: RunSettings) -> dict[str, Any]:
  """What makes it this run and no other, by the names of the flags."""
  return {
      "tasks": str(settings.tasks.resolve()) if settings.tasks else None,
      "harness": settings.harness,
      "samples": settings.samples,
      "channel": settings.channel,
      "pool": settings.pool,
      "model": settings.model,
      "max_turns": settings.turns,
      **settings.pins,
  }
