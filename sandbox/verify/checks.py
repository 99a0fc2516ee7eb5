"""Runs a task's checks on a copy of the workspace, in a sandbox of its own.

Called after the agent's sandbox is dead. The checks are staged only here, at
/checks; links in the workspace that lead out of it were dropped on the way
in, so none can point at them. A check that crashes, runs out of time or gives
anything but finite numbers in [0, 1] makes the attempt unscored with a cause,
never a score. What the agent left can kill the checks or hold them up (a script
that they run, a huge file): where that happens twice, and the checks do judge
the untouched workspace, it is the agent's doing and scores 0.
"""

from __future__ import annotations

import json
import math
import secrets
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.task import Task
from clawgym_jax.contracts.trajectory import Outcome, scored, unscored
from sandbox.backends import Bounds, SandboxError, SandboxLost, open_sandbox
from sandbox.backends.base import gather, pack

CHECK_SECONDS = 20.0

_RUNNER = Path(__file__).with_name("runner.py").read_bytes()
_AGENT = Bounds()
_BOUNDS = Bounds(disk=4 * _AGENT.disk, inodes=4 * _AGENT.inodes)


class _CheckError(Exception):
  """The checks gave no sound result."""


class _Ended(_CheckError):
  """They were killed or ran out of time."""


async def verify(
    task: Task,
    snapshot: bytes,
    final_message: str,
    transcript: list[dict[str, Any]],
    *,
    backend: str = "bubblewrap",
    run_id: str = "verify",
    seconds: float = CHECK_SECONDS,
) -> Outcome:
  """Scores a workspace (a tar, see `Sandbox.snapshot`) by the task's checks.

  `code` is the mean of what `grade` gives, weighted by `task.check_weights`
  (1 where it names none).
  """

  async def grade(state: bytes, message: str, messages: list[Any]) -> dict[str, float]:
    return await _grade(task, state, message, messages, backend, run_id, seconds)

  try:
    try:
      checks = await grade(snapshot, final_message, transcript)
    except _Ended as error:
      await grade(pack(gather(task.workspace)), "", [])
      try:
        checks = await grade(snapshot, final_message, transcript)
      except _Ended:
        return scored(0.0, cause=f"checks_ended: {error}")
    return scored(_weighted(task, checks), checks)
  except _CheckError as error:
    return unscored(f"check_error: {error}")
  except (SandboxLost, SandboxError) as error:
    return unscored(f"verifier_lost: {error}")


async def _grade(
    task: Task,
    snapshot: bytes,
    final_message: str,
    transcript: list[dict[str, Any]],
    backend: str,
    run_id: str,
    seconds: float,
) -> dict[str, float]:
  """What `grade` gives in a fresh sandbox; `_CheckError` if nothing sound."""
  sandbox = open_sandbox(
      backend,
      bounds=_BOUNDS,
      run_id=run_id,
      now=task.now,
      folders=("/checks", "/verify"),
  )
  nonce = secrets.token_hex(16)
  given = {"nonce": nonce, "final_message": final_message, "transcript": transcript}
  async with sandbox:
    await sandbox.start()
    await sandbox.restore(snapshot)
    await sandbox.restore(pack(gather(task.checks)), "/checks")
    await sandbox.restore(
        pack({"runner.py": _RUNNER, "input.json": json.dumps(given).encode()}),
        "/verify",
    )
    result = await sandbox.exec("exec python3 -I /verify/runner.py", seconds)
  if result.timed_out:
    raise _Ended(f"no result within {seconds:g} s")
  return _parse(result.output, nonce, result.exit_code)


def _parse(output: str, nonce: str, exit_code: int) -> dict[str, float]:
  lines = [line for line in output.splitlines() if line.startswith(nonce + " ")]
  if len(lines) != 1:
    kind = _Ended if exit_code > 128 else _CheckError
    raise kind(f"the checks ended without a result (exit code {exit_code})")
  result = json.loads(lines[0].removeprefix(nonce))
  if "error" in result:
    raise _CheckError(result["error"])
  checks = result["checks"]
  if not checks:
    raise _CheckError("grade gave no checks")
  for name, value in checks.items():
    if not math.isfinite(value) or not 0.0 <= value <= 1.0:
      raise _CheckError(f"{name} = {value} is not in [0, 1]")
  return checks


def _weighted(task: Task, checks: dict[str, float]) -> float:
  missing = sorted(task.check_weights.keys() - checks.keys())
  if missing:
    raise _CheckError(f"grade gave no {', '.join(missing)}, which has a weight")
  weights = {name: task.check_weights.get(name, 1.0) for name in checks}
  total = sum(weights.values())
  if not total > 0 or min(weights.values()) < 0:
    raise _CheckError("the check weights are negative or sum to 0")
  mean = sum(weights[name] * value for name, value in checks.items()) / total
  return min(1.0, max(0.0, mean))  # rounding alone can leave [0, 1]
