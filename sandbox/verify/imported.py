"""Judging any task: by its checks, or by the reward package that it came with.

A task imported from ClawGym keeps the package as it was in checks/reward/, and
checks/reward.json says how it is run. It gets a sandbox of its own for each
state, and the workspace as the agent was given it, so that an agent which makes
the package fail scores 0. Its checks/check.py only says so: nothing else can
judge it, and never a warm verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.task import Task
from clawgym_jax.contracts.trajectory import Outcome
from sandbox.backends import Bounds
from sandbox.backends.base import gather, pack
from sandbox.verify import checks
from sandbox.verify.checks import CHECK_SECONDS
from sandbox.verify.state import State
from sandbox.verify.clawgym import REWARD_SECONDS, verify_clawgym

PACKAGE = "checks/reward.json"
CHECK = b'''"""The task's own reward package judges it: see checks/reward.json."""


def grade(workspace, final_message, transcript):
  raise RuntimeError("judge this task by sandbox.verify.verify: its checks are foreign")
'''


def is_foreign(task: Task) -> bool:
  """Whether a reward package of others judges the task."""
  return (task.checks / "reward.json").is_file()


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
  """`checks.verify`; a foreign package has REWARD_SECONDS at least."""
  if not is_foreign(task):
    return await checks.verify(
        task,
        snapshot,
        final_message,
        transcript,
        reports=reports,
        backend=backend,
        run_id=run_id,
        seconds=seconds,
        agent=agent,
    )
  package = json_text.parse((task.checks / "reward.json").read_text())
  return await verify_clawgym(
      gather(task.checks / "reward"),
      State(snapshot, final_message, transcript, reports),
      package["payload"],
      command=package["command"],
      untouched=pack(gather(task.workspace)),
      now=task.now,
      backend=backend,
      run_id=run_id,
      seconds=max(seconds, REWARD_SECONDS),
      agent=agent,
  )
