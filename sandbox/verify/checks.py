"""Runs a task's checks on a copy of the workspace, in a sandbox of its own.

Called after the agent's sandbox is dead. The checks are staged only here, at
/checks; links in the workspace that lead out of it were dropped on the way
in, so none can point at them. A check that crashes, runs out of time or gives
anything but finite numbers in [0, 1] makes the attempt unscored with a cause,
never a score. What the agent left can kill the checks or hold them up (a script
that they run, a huge file): where that happens twice, and the checks do judge
the untouched workspace, it is the agent's doing and scores 0.

Scoring has a clock of its own: the checks' seconds count from when they start,
whatever the attempt or the start of this sandbox took.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.task import Task
from clawgym_jax.contracts.trajectory import Outcome, scored, unscored
from sandbox.backends import Bounds, Sandbox, SandboxError, SandboxLost, open_sandbox
from sandbox.backends.base import Files, gather, pack
from sandbox.verify.state import State

CHECK_SECONDS = 20.0

_CHECK_ERROR = "check_error"  # kind of cause

_PROGRAMS = {
    f"verify/{name}": Path(__file__).with_name(name).read_bytes()
    for name in ("runner.py", "resident.py")
}
_RUN = "exec python3 -I -S /verify/runner.py"
_LEAST = Bounds(disk=4 * Bounds().disk, inodes=4 * Bounds().inodes)
_PAGE = 4096  # bytes that a file of one byte takes
_STAGING_SECONDS = 120.0  # of a verifier sandbox's life, beside the checks' own

Graded = tuple[float, dict[str, float]]  # the score, and the values behind it


class CheckError(Exception):
  """The checks gave no sound result."""


class ChecksEnded(CheckError):
  """They were killed or ran out of time."""


async def verify(
    task: Task,
    snapshot: bytes,
    final_message: str,
    transcript: Sequence[dict[str, Any]],
    *,
    reports: Sequence[dict[str, Any]] = (),
    backend: str = "bubblewrap",
    run_id: str = "verify",
    seconds: float = CHECK_SECONDS,
    agent: Bounds = Bounds(),
) -> Outcome:
  """Scores a workspace by the task's checks; `reports` are for those that ask.

  `agent` are the bounds of the sandbox that the workspace is of. `code` is the mean
  of what `grade` gives, weighted by `task.check_weights` (1 where it names none).
  """

  async def grade(state: State) -> Graded:
    checks = await _grade(task, state, backend, run_id, seconds, agent)
    return weighted(task, checks), checks

  return await judge(
      grade,
      State(snapshot, final_message, transcript, reports),
      lambda: State(pack(gather(task.workspace))),
  )


async def judge(
    grade: Callable[[State], Awaitable[Graded]],
    state: State,
    untouched: Callable[[], State] | None,
) -> Outcome:
  """The outcome of `state` by `grade`; the one place where that is decided.

  Where the checks end without a result for `state`, twice, and not for the
  untouched workspace, the agent did it and scores 0.
  """
  try:
    try:
      score, checks = await grade(state)
    except ChecksEnded as error:
      if untouched is None:
        raise
      await grade(untouched())
      try:
        score, checks = await grade(state)
      except ChecksEnded:
        return scored(0.0, cause=f"checks_ended: {error}")
    return scored(score, checks)
  except CheckError as error:
    return unscored(f"{_CHECK_ERROR}: {error}")
  except (SandboxLost, SandboxError) as error:
    return unscored(f"verifier_lost: {error}")


def is_check_error(cause: str | None) -> bool:
  """Whether an attempt is unscored for what its checks did, not its agent."""
  return (cause or "").startswith(f"{_CHECK_ERROR}:")


def open_verifier(
    backend: str,
    run_id: str,
    now: str,
    folders: tuple[str, ...],
    seconds: float,
    agent: Bounds,
) -> Sandbox:
  """A sandbox, not started, for checks that take at most `seconds` in all, of what
  a sandbox of the bounds `agent` can hold."""
  # A snapshot holds at most twice its disk, for links and holes come as files.
  bounds = Bounds(
      disk=max(_LEAST.disk, 2 * (agent.disk + _PAGE * agent.inodes)),
      inodes=max(_LEAST.inodes, 2 * agent.inodes),
      lifetime_seconds=seconds + _STAGING_SECONDS,
  )
  return open_sandbox(
      backend, bounds=bounds, run_id=run_id, now=now, folders=(*folders, "/verify")
  )


async def stage(task: Task, sandbox: Sandbox, state: State) -> str:
  """Puts the checks, the programs and their input in place; gives the nonce."""
  checks = {f"checks/{name}": data for name, data in gather(task.checks).items()}
  return await hand_over(sandbox, state, {**checks, **_PROGRAMS})


async def hand_over(sandbox: Sandbox, state: State, beside: Files = {}) -> str:
  """Puts the workspace and the runner's input in place; gives the nonce.

  `beside` are more files, by their paths from the root.
  """
  nonce = secrets.token_hex(16)
  given = {
      "nonce": nonce,
      "final_message": state.final_message,
      "transcript": list(state.transcript),
      "reports": list(state.reports),
  }
  await sandbox.restore(state.snapshot)
  files = {**beside, "verify/input.json": json.dumps(given).encode()}
  await sandbox.restore(pack(files), "/")
  return nonce


async def _grade(
    task: Task, state: State, backend: str, run_id: str, seconds: float, agent: Bounds
) -> dict[str, float]:
  """What `grade` gives in a fresh sandbox; `CheckError` if nothing sound."""
  sandbox = open_verifier(backend, run_id, task.now, ("/checks",), seconds, agent)
  async with sandbox:
    await sandbox.start()
    nonce = await stage(task, sandbox, state)
    result = await sandbox.exec(_RUN, seconds)
  if result.timed_out:
    raise ChecksEnded(f"no result within {seconds:g} s")
  return sound(said(result.output, nonce, result.exit_code))


def said(output: str, nonce: str, exit_code: int) -> dict[str, Any]:
  """What the runner said: the one line that starts with the nonce."""
  lines = [line for line in output.splitlines() if line.startswith(nonce + " ")]
  if len(lines) != 1:
    kind = ChecksEnded if exit_code > 128 else CheckError
    raise kind(f"the checks ended without a result (exit code {exit_code})")
  try:
    return json.loads(lines[0].removeprefix(nonce))
  except ValueError:
    raise CheckError("the checks' result was too long to get through") from None


def sound(result: dict[str, Any]) -> dict[str, float]:
  """The values in a runner's result; `CheckError` unless all are in [0, 1]."""
  if "error" in result:
    raise CheckError(result["error"])
  checks = result.get("checks")
  if not checks or not isinstance(checks, dict):
    raise CheckError("grade gave no checks")
  for name, value in checks.items():
    number = isinstance(value, (int, float)) and math.isfinite(value)
    if not number or not 0.0 <= value <= 1.0:
      raise CheckError(f"{name} = {value} is not in [0, 1]")
  return checks


def weighted(task: Task, checks: dict[str, float]) -> float:
  """Their mean, by the task's weights."""
  missing = sorted(task.check_weights.keys() - checks.keys())
  if missing:
    raise CheckError(f"grade gave no {', '.join(missing)}, which has a weight")
  weights = {name: task.check_weights.get(name, 1.0) for name in checks}
  total = sum(weights.values())
  if not total > 0 or min(weights.values()) < 0:
    raise CheckError("the check weights are negative or sum to 0")
  mean = sum(weights[name] * value for name, value in checks.items()) / total
  return min(1.0, max(0.0, mean))  # rounding alone can leave [0, 1]
