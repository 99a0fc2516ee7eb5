"""A whole run in a folder: plan, work off, write out; the same call resumes.

`OUT/run.json` says what the run is, `OUT/pool.db` (unless the pool is
elsewhere) what has been done, and at the end `OUT/trajectories.jsonl` holds
every planned sample once, with `OUT/summary.json` beside it. A second run in
the same folder at the same time is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawgym_jax import cli
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_atomic, write_json
from clawgym_jax.contracts.runs import only_writer, same_run
from clawgym_jax.contracts.task import list_tasks
from clawgym_jax.contracts.trajectory import Trajectory, to_record
from clawgym_jax.pool import Pool
from sandbox import gateway
from sandbox.backends import check_backend
from sandbox.fleet.workers import run_attempts
from sandbox.harnesses import load
from sandbox.reap import reap

_FREE_BYTES = 256 << 20


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


def roll_out(settings: RunSettings) -> dict[str, Any]:
  """Makes or resumes the run; returns its summary, which counts every sample."""
  harness = load(settings.harness)
  if harness.needs_model and not settings.upstream:
    raise UserError(
        f"harness {harness.name} needs a model; give --upstream=URL"
        " (python -m clawgym_jax.serve starts one)"
    )
  check_backend(settings.backend)
  planned = [] if settings.follow else _tasks(settings)
  if harness.needs_model:
    asyncio.run(_reach(settings))
  with only_writer(settings.out, "rollout"):
    free = shutil.disk_usage(settings.out).free
    if free < _FREE_BYTES:
      raise UserError(
          f"{settings.out} has {free >> 20} MiB left, too little to record into;"
          " free some or choose another --out"
      )
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
      asyncio.run(_work(settings, pool, owner))
      return _write(settings, pool)


async def _work(settings: RunSettings, pool: Pool, owner: str) -> None:
  harness = load(settings.harness)
  counts = pool.counts(settings.channel)
  done = sum(counts[name] for name in ("scored", "truncated", "unscored"))
  bar = cli.progress(
      counts["samples"], f"rollout {harness.name}", done=done, unit="sample"
  )
  seen: Counter[str] = Counter()
  rewards: list[float] = []

  def finished(trajectory: Trajectory) -> None:
    outcome = trajectory.outcome
    if outcome.status == "unscored":
      kind = outcome.cause.split(":")[0]
      seen[kind] += 1
      if seen[kind] == 1:
        bar.write(f"unscored: {trajectory.task_id}: {outcome.cause}", file=bar.fp)
    else:
      rewards.append(outcome.score)
    counts = pool.counts(settings.channel)
    bar.total = counts["samples"]
    done = sum(counts[name] for name in ("scored", "truncated", "unscored"))
    mean = f"{sum(rewards) / len(rewards):.3f}" if rewards else "-"
    bar.set_postfix(reward=mean, unscored=sum(seen.values()), refresh=False)
    bar.update(done - bar.n)

  async with contextlib.AsyncExitStack() as stack:
    stack.callback(bar.close)
    sessions = None
    if harness.needs_model:
      sessions = await stack.enter_async_context(
          gateway.start(
              pool,
              settings.upstream,
              settings.pins,
              model=settings.model,
              api_key=os.environ.get("UPSTREAM_API_KEY"),
          )
      )
    await run_attempts(
        pool,
        settings.channel,
        harness,
        owner=owner,
        concurrency=settings.concurrency,
        gateway=sessions,
        turns=settings.turns,
        run_id=settings.out.name or "run",
        backend=settings.backend,
        follow=settings.follow,
        finished=finished,
    )


def _write(settings: RunSettings, pool: Pool) -> dict[str, Any]:
  """Writes the results; `UserError` where not one sample could be judged."""
  lines = []
  causes: Counter[str] = Counter()
  total = 0.0
  for trajectory in pool.trajectories(settings.channel):
    lines.append(json_text.dump(to_record(trajectory)) + "\n")
    if trajectory.outcome.status == "unscored":
      causes[trajectory.outcome.cause] += 1
    else:
      total += trajectory.outcome.score
  write_atomic(settings.out / "trajectories.jsonl", "".join(lines))
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
      "mean_reward": total / judged if judged else None,
      "refilled": counts["refilled"],
      "dropped_attempts_by_cause": pool.dropped(settings.channel),
      "sampled_tokens": counts["sampled_tokens"],
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


async def _reach(settings: RunSettings) -> None:
  """Finds the upstream before anything is written; `UserError` if there is none."""
  upstream = await gateway.connect(
      settings.upstream,
      model=settings.model,
      api_key=os.environ.get("UPSTREAM_API_KEY"),
  )
  await upstream.close()


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
