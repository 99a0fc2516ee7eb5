"""One attempt: boot, work, stop, judge. It always ends in an `Outcome`.

The clocks are apart: booting, the policy's time in tools, the whole attempt
and scoring each have their own bound. The agent's sandbox is dead before the
checks start. What decides between a score and none:

  the policy's doing, scored or truncated    not its doing, unscored
  fork bomb, full disk, memory, own timeout  sandbox or verifier lost
  turn limit, time in tools, full context    model unreachable, no model call
  a workspace beyond its bounds (0)          a check that crashes, a broken task
"""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from clawgym_jax.contracts.task import Task
from clawgym_jax.contracts.trajectory import Outcome, scored, truncated, unscored
from sandbox.backends import Bounds, SandboxError, SandboxLost, open_sandbox
from sandbox.backends.base import Sandbox
from sandbox.harnesses import Harness, HarnessContext, HarnessResult, load
from sandbox.harnesses.claw import MODEL_SECONDS
from sandbox.verify import verify

_POLICY_STOPS = ("turn_limit", "time_limit", "context_limit")


@dataclass(frozen=True)
class AttemptResult:
  """What an attempt left; `changes` is path -> added | removed | changed."""

  outcome: Outcome
  final_message: str = ""
  transcript: list[dict[str, Any]] = field(default_factory=list)
  model_calls: int = 0
  stop: str = "error"
  changes: dict[str, str] = field(default_factory=dict)
  seconds: dict[str, float] = field(default_factory=dict)


async def attempt_task(
    task: Task,
    harness: Harness,
    *,
    base_url: str = "",
    api_key: str = "",
    model: str = "policy",
    turns: int | None = None,
    run_id: str = "run",
    backend: str = "bubblewrap",
) -> AttemptResult:
  """Makes one attempt; `turns` replaces the task's own limit where given."""
  refusal = _refusal(task, harness)
  if refusal:
    return AttemptResult(unscored(refusal))
  turns = task.limits.turns if turns is None else turns
  whole = task.limits.seconds + turns * MODEL_SECONDS
  sandbox = open_sandbox(
      backend,
      bounds=Bounds(lifetime_seconds=whole + 120.0),
      run_id=run_id,
      now=task.now,
  )
  started = time.monotonic()
  seconds: dict[str, float] = {}
  try:
    async with sandbox:
      await sandbox.start(task.workspace)
      seconds["boot"] = time.monotonic() - started
      result = await harness.run(
          HarnessContext(
              task,
              sandbox,
              base_url,
              api_key,
              model,
              turns,
              task.limits.seconds,
              time.monotonic() + whole,
          )
      )
      seconds["work"] = time.monotonic() - started - seconds["boot"]
      early = _unjudged(harness, result)
      changes, snapshot = {}, b""
      if early is None:
        try:
          changes, snapshot = await _collect(sandbox)
        except SandboxError as error:  # only what is in the workspace can do that
          early = scored(0.0, cause=f"workspace_unreadable: {error}")
  except SandboxLost as error:
    return AttemptResult(unscored(f"sandbox_lost: {error}"), seconds=seconds)
  judging = time.monotonic()
  outcome = early or await _judge(task, snapshot, result, backend, run_id)
  seconds["verify"] = time.monotonic() - judging
  return AttemptResult(
      outcome,
      result.final_message,
      result.transcript,
      result.model_calls,
      result.stop,
      changes,
      {name: round(value, 3) for name, value in seconds.items()},
  )


async def safe_attempt(task: Task, harness: Harness, **settings: Any) -> AttemptResult:
  """`attempt_task`, in which a defect of ours is unscored with its place named."""
  try:
    return await attempt_task(task, harness, **settings)
  except Exception as error:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
    return AttemptResult(
        unscored(f"internal_error: {type(error).__name__}: {error} ({where})")
    )


async def grade_with(
    task: Task, harness: str | Harness, *, run_id: str = "audit"
) -> Outcome:
  """The outcome of one attempt by a harness that needs no model; no pool."""
  agent = load(harness) if isinstance(harness, str) else harness
  if agent.needs_model:
    raise ValueError(f"harness {agent.name} needs a model; use sandbox.rollout")
  return (await attempt_task(task, agent, run_id=run_id)).outcome


def _refusal(task: Task, harness: Harness) -> str | None:
  missing = sorted(set(task.requires) - harness.provides)
  if missing:
    return f"requires: {', '.join(missing)}"
  if task.network != "none":
    return f"network: policy {task.network!r} isn't built in yet"
  return None


def _unjudged(harness: Harness, result: HarnessResult) -> Outcome | None:
  """An outcome that needs no checks, or None."""
  if result.infra:
    return unscored(result.cause or "infra")
  if harness.needs_model and result.model_calls == 0:
    return unscored(f"no_model_calls: {result.cause or result.stop}")
  return None


async def _collect(sandbox: Sandbox) -> tuple[dict[str, str], bytes]:
  await sandbox.quiet()
  snapshot = await sandbox.snapshot()
  return sandbox.changes(snapshot), snapshot


async def _judge(
    task: Task, snapshot: bytes, result: HarnessResult, backend: str, run_id: str
) -> Outcome:
  outcome = await verify(
      task,
      snapshot,
      result.final_message,
      result.transcript,
      backend=backend,
      run_id=run_id,
  )
  if outcome.status == "scored" and result.stop in _POLICY_STOPS:
    cause = result.cause or result.stop
    return truncated(cause, outcome.code, outcome.checks)
  return outcome
