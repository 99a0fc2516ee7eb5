"""One attempt: boot, work, stop, judge. It always ends in an `Outcome`.

The clocks are apart (see `Clocks`), and scoring takes nothing from any other.
The services that the task requires are staged at /services before the agent
starts; what they reported goes to the checks. The agent's sandbox is dead
before the checks start. What decides between a score and none:

  the policy's doing, scored or truncated    not its doing, unscored
  fork bomb, full disk, memory, own timeout  sandbox or verifier lost
  turn limit, time in tools, full context    model unreachable, no model call
  a workspace beyond its bounds (0)          a check that crashes, a broken task
                                             no space on the host's own disk

What a task's rubric asks is judged later, by others: until then the outcome has the
code's value and no score.
"""

from __future__ import annotations

import asyncio
import errno
import tempfile
import time
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import require_room
from clawgym_jax.contracts.task import Task
from clawgym_jax.contracts.trajectory import (
    Outcome,
    awaiting_rubric,
    scored,
    truncated,
    unscored,
)
from sandbox import services
from sandbox.backends import Bounds, SandboxError, SandboxLost, open_sandbox
from sandbox.backends.base import Sandbox
from sandbox.harnesses import Harness, HarnessContext, HarnessResult, load
from sandbox.harnesses.base import TURN_SECONDS
from sandbox.verify import State, Verifiers
from sandbox.verify.checks import CHECK_SECONDS

_POLICY_STOPS = ("turn_limit", "time_limit", "context_limit")


@dataclass(frozen=True)
class Clocks:
  """Seconds at most, each counted apart from the others.

  Attributes:
    boot: until the sandbox answers.
    tools: what the policy spends in tools, all calls together.
    turn: one model call.
    work: from the end of booting until the harness ends; enough for every turn.
    collect: for the workspace to be taken out afterwards.
    scoring: the checks, in a sandbox of their own.
  """

  tools: float
  work: float
  boot: float = Bounds().boot_seconds
  turn: float = TURN_SECONDS
  collect: float = 120.0
  scoring: float = CHECK_SECONDS

  @classmethod
  def of(cls, task: Task, turns: int) -> Clocks:
    tools = task.limits.seconds
    return cls(tools=tools, work=tools + turns * TURN_SECONDS)

  @property
  def lifetime(self) -> float:
    """Of the agent's sandbox: no other clock can run into its end."""
    return self.boot + self.work + self.collect


@dataclass(frozen=True)
class AttemptResult:
  """What an attempt left.

  Attributes:
    changes: path -> added | removed | changed.
    seconds: what boot, work and verify took.
    reports: the services' side effects; `duplicates` are those that came again.
    bad_reports: how many came that were none, and were dropped.
  """

  outcome: Outcome
  final_message: str = ""
  transcript: list[dict[str, Any]] = field(default_factory=list)
  model_calls: int = 0
  stop: str = "error"
  changes: dict[str, str] = field(default_factory=dict)
  seconds: dict[str, float] = field(default_factory=dict)
  reports: list[dict[str, Any]] = field(default_factory=list)
  duplicates: list[dict[str, Any]] = field(default_factory=list)
  bad_reports: int = 0


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
    verifiers: Verifiers | None = None,
) -> AttemptResult:
  """Makes one attempt; `turns` replaces the task's own limit where given.

  `verifiers` judge it, where there are several attempts to judge.
  """
  refusal = _refusal(task, harness)
  if refusal:
    return AttemptResult(unscored(refusal))
  turns = task.limits.turns if turns is None else turns
  clocks = Clocks.of(task, turns)
  sandbox = open_sandbox(
      backend,
      bounds=replace(
          harness.bounds,
          boot_seconds=clocks.boot,
          lifetime_seconds=clocks.lifetime,
      ),
      run_id=run_id,
      now=task.now,
      folders=services.folders(task),
  )
  started = time.monotonic()
  seconds: dict[str, float] = {}
  try:
    async with sandbox:
      await sandbox.start(task.workspace)
      await services.stage(task, sandbox)
      booted = time.monotonic()
      seconds["boot"] = booted - started
      context = HarnessContext(
          task, sandbox, base_url, api_key, model, turns, clocks.tools,
          clocks.turn, booted + clocks.work,
      )  # fmt: skip
      result = await _work(harness, context, clocks)
      seconds["work"] = time.monotonic() - booted
      early = _unjudged(harness, result)
      changes, snapshot = {}, b""
      if early is None:
        try:
          changes, snapshot = await _collect(sandbox)
        except SandboxError as error:  # only what is in the workspace can do that
          early = scored(0.0, cause=f"workspace_unreadable: {error}")
  except SandboxLost as error:
    return AttemptResult(unscored(f"sandbox_lost: {error}"), seconds=seconds)
  reports = services.effects(sandbox.reports)
  judging = time.monotonic()
  outcome = early or await _judge(
      verifiers or Verifiers(),  # of which the first verdict leaves nothing to close
      task,
      State(snapshot, result.final_message, result.transcript, reports),
      result,
      backend=backend,
      run_id=run_id,
      seconds=clocks.scoring,
      agent=harness.bounds,
  )
  seconds["verify"] = time.monotonic() - judging
  if task.rubric():  # whoever judges it has the code's outcome to go on from
    outcome = awaiting_rubric(outcome)
  return AttemptResult(
      outcome,
      result.final_message,
      result.transcript,
      result.model_calls,
      result.stop,
      changes,
      {name: round(value, 3) for name, value in seconds.items()},
      reports,
      services.duplicates(reports),
      sandbox.bad_reports,
  )


async def safe_attempt(task: Task, harness: Harness, **settings: Any) -> AttemptResult:
  """`attempt_task` with room to work in; a defect of ours is unscored and named."""
  try:
    require_room(Path(tempfile.gettempdir()))
    return await attempt_task(task, harness, **settings)
  except UserError as error:
    return AttemptResult(unscored(f"host: {error}"))
  except Exception as error:
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
      return AttemptResult(unscored(f"no_space: {error}"))
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


async def _work(
    harness: Harness, context: HarnessContext, clocks: Clocks
) -> HarnessResult:
  """The harness's result; one that does not see its own deadline is cut off."""
  try:
    async with asyncio.timeout(clocks.work + clocks.collect / 2) as clock:
      return await harness.run(context)
  except TimeoutError:
    if not clock.expired():
      raise
    cause = f"harness_stuck: {harness.name} did not end within {clocks.work:g} s"
    return HarnessResult("", "error", cause, infra=True)


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
    verifiers: Verifiers,
    task: Task,
    state: State,
    result: HarnessResult,
    **settings: Any,
) -> Outcome:
  outcome = await verifiers.judge(task, state, **settings)
  if outcome.status == "scored" and result.stop in _POLICY_STOPS:
    cause = result.cause or result.stop
    return truncated(cause, outcome.code, outcome.checks)
  return outcome
