"""Scores by a reward package of ClawGym as it came: reward.sh, or a hook.

The package runs unchanged where it expects to: the workspace is at
/root/.openclaw/workspace, the package in its reward/, HOME is /root, and
OPENCLAW_REWARD_PAYLOAD names a JSON file. It gets a fresh sandbox without
network for each state. What it says is what counts: its last line, one number;
or JSON, of which `reward` counts if it is there and else the mean.

A package that exits with an error, says nothing sound or takes too long gives
no score. Where the untouched workspace is at hand and the package works on
that, twice, it is the agent's doing and scores 0, as in the original.

What the agent prepared can't win: whatever it left at reward/ is gone before
the package comes, the payload is out of its reach, and the package starts in a
folder that holds nothing, so that no module planted in the workspace is
imported. What is not protected, because the package's last line is its only
channel: a package that runs the agent's own programs runs them as itself.
Such a program can read and change reward/, write to the package's output or
stop the package. That the number is taken only from a package that ended well,
and nothing that comes after its end is read, makes this hard, not impossible.
Nothing of it reaches past this one score: not the next state, not the host.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from typing import Any

from clawgym_jax.contracts.trajectory import Outcome
from sandbox.backends import Bounds, ExecResult, Sandbox, SandboxError
from sandbox.backends.base import Files, pack
from sandbox.verify.checks import (
    ChecksEnded,
    Graded,
    State,
    judge,
    open_verifier,
)

_HOME = "/root"  # mounted itself: in many images only root may enter it
WORKSPACE = f"{_HOME}/.openclaw/workspace"
REWARD_SH = "bash reward/reward.sh"
REWARD_SECONDS = 120.0

_STAGING_SECONDS = 30.0
_RELATIVE = re.compile(r"(?<![\w./-])(\./)?reward/")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def verify_clawgym(
    reward_files: Files,
    state: State,
    payload: Mapping[str, Any],
    *,
    command: str = REWARD_SH,
    untouched: bytes | None = None,
    now: str = "",
    backend: str = "bubblewrap",
    run_id: str = "verify",
    seconds: float = REWARD_SECONDS,
    agent: Bounds = Bounds(),
) -> Outcome:
  """The original number, as `score` and `code`.

  Args:
    reward_files: the package, by paths relative to reward/.
    payload: `task_id`, `user_query` and `metadata`; what the package finds
      besides the state's final message and transcript.
    command: what runs it, the hook_code of formats that have one; `reward/`
      in it is the package's place.
    untouched: a snapshot of the workspace as the agent was given it.
    agent: the bounds of the sandbox that the state is of.
  """

  async def grade(state: State) -> Graded:
    given = {
        **payload,
        "final_message": state.final_message,
        "transcript": list(state.transcript),
    }
    sandbox = open_verifier(backend, run_id, now, (_HOME,), seconds, agent)
    async with sandbox:
      await sandbox.start()
      await _stage(sandbox, state, reward_files, given)
      result = await sandbox.exec(_command(command), seconds)
      return _graded(result, seconds, await _complaint(sandbox, result))

  if untouched is None:
    return await judge(grade, state, None)
  return await judge(grade, state, lambda: State(untouched))


async def _stage(
    sandbox: Sandbox, state: State, reward_files: Files, given: dict[str, Any]
) -> None:
  """The state, then the package in place of what the agent left there."""
  await sandbox.exec(f"mkdir -p {WORKSPACE}", _STAGING_SECONDS)
  await sandbox.restore(state.snapshot, WORKSPACE)
  removed = await sandbox.exec(f"rm -rf {WORKSPACE}/reward", _STAGING_SECONDS)
  if removed.exit_code != 0:
    raise ChecksEnded(f"reward/ can't be removed: {removed.output.strip()[:200]}")
  await sandbox.restore(pack(reward_files), f"{WORKSPACE}/reward")
  await sandbox.restore(pack({"payload.json": json.dumps(given).encode()}), "/verify")


def _command(command: str) -> str:
  command = _RELATIVE.sub(f"{WORKSPACE}/reward/", command)
  return (
      "mkdir /verify/start && cd /verify/start &&"
      f" export HOME={_HOME} LC_ALL=C.UTF-8 PATH={_PATH}"
      " OPENCLAW_REWARD_PAYLOAD=/verify/payload.json &&"
      f" exec bash -c {shlex.quote(command)} 2>/verify/stderr"
  )


async def _complaint(sandbox: Sandbox, result: ExecResult) -> str:
  """The end of what it wrote to stderr, where it did not end well."""
  if result.exit_code == 0 or result.timed_out:
    return ""
  try:
    said = await sandbox.read("/verify/stderr")
    return said.decode(errors="replace").strip()[-300:]
  except SandboxError:
    return ""


def _graded(result: ExecResult, seconds: float, complaint: str) -> Graded:
  """The number in what the package said; `ChecksEnded` if there is none."""
  if result.timed_out:
    raise ChecksEnded(f"no result within {seconds:g} s")
  if result.exit_code != 0:
    raise ChecksEnded(f"exit code {result.exit_code}: {complaint}")
  values = _values(result.output)
  for name, value in values.items():
    if not math.isfinite(value) or not 0.0 <= value <= 1.0:
      raise ChecksEnded(f"{name} = {value} is not in [0, 1]")
  score = values["reward"] if "reward" in values else sum(values.values()) / len(values)
  return min(1.0, max(0.0, score)), values


def _values(output: str) -> dict[str, float]:
  lines = [line.strip() for line in output.splitlines() if line.strip()]
  if not lines:
    raise ChecksEnded("it said nothing")
  last = lines[-1]
  for parse, text in ((float, last), (json.loads, last), (json.loads, output)):
    try:
      said = parse(text)
      named = said if isinstance(said, dict) else {"reward": said}
      if named:
        return {str(name): float(value) for name, value in named.items()}
    except (ValueError, TypeError, RecursionError):
      continue
  raise ChecksEnded(f"its last line is no number: {last[:100]!r}")
