"""Turns trajectories into a set for supervised fine-tuning.

  python -m sandbox.curate --trajectories=DIR --min_reward=.5 --to=chat_jsonl --out=F

One line a kept trajectory: {"messages", "tools", "task_id", "reward"}. What is
left out is counted by its cause, and no trajectory is counted twice. A
conversation that was rewritten under way gives its last branch; the other
branches are counted too.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.files import read_lines, write_atomic
from clawgym_jax.contracts.trajectory import Trajectory, trajectory_from_record

_TRAJECTORIES = flags.DEFINE_string(
    "trajectories", None, "Folder of a rollout, or its trajectories.jsonl.",
    required=True,
)
_OUT = flags.DEFINE_string("out", None, "File to write.", required=True)
_TO = flags.DEFINE_string("to", "chat_jsonl", "Format; chat_jsonl so far.")
_MIN_REWARD = flags.DEFINE_float("min_reward", 0.5, "Least reward kept.", 0.0, 1.0)
_MAX_PER_TASK = flags.DEFINE_integer("max_per_task", 4, "Kept per task at most.", 1)

_HEARTBEATS = ("HEARTBEAT_OK", "NO_REPLY")


def curate(
    trajectories: list[Trajectory], *, min_reward: float, max_per_task: int
) -> tuple[list[dict[str, Any]], dict[str, int]]:
  """The kept conversations, in order, and how many were dropped by cause."""
  kept, dropped = [], Counter()
  seen: set[str] = set()
  per_task: Counter[str] = Counter()
  for trajectory in trajectories:
    cause = _fault(trajectory, min_reward)
    if cause:
      dropped[cause] += 1
      continue
    leaf = trajectory.leaves()[-1]
    messages = trajectory.conversation(leaf)
    tools = trajectory.chain(leaf)[0].tools or []
    digest = hashlib.sha256(
        json.dumps([_meaning(m) for m in messages], sort_keys=True).encode()
    ).hexdigest()
    if digest in seen:
      dropped["duplicate"] += 1
      continue
    if per_task[trajectory.task_id] >= max_per_task:
      dropped["over_cap_of_task"] += 1
      continue
    seen.add(digest)
    per_task[trajectory.task_id] += 1
    branches = len(trajectory.leaves()) - 1
    if branches:
      dropped["earlier_branch"] += branches
    kept.append({
        "messages": messages,
        "tools": tools,
        "task_id": trajectory.task_id,
        "reward": trajectory.outcome.score,
    })
  return kept, dict(dropped)


def _fault(trajectory: Trajectory, min_reward: float) -> str | None:
  """Why a trajectory can't be learnt from, or None."""
  if trajectory.outcome.status == "unscored":
    return "unscored"
  if trajectory.outcome.score < min_reward:
    return "below_min_reward"
  if trajectory.outcome.status == "truncated":
    return "truncated"
  if not trajectory.steps:
    return "no_model_calls"
  if trajectory.final_message.strip() in _HEARTBEATS:
    return "heartbeat"
  chain = trajectory.chain(trajectory.leaves()[-1])
  if any(step.finish_reason == "length" for step in chain):
    return "cut_response"
  offered = {tool["function"]["name"] for tool in chain[0].tools or []}
  called = {
      call["function"]["name"]
      for step in chain
      for call in step.response.get("tool_calls") or []
  }
  return "unsupported_tool" if called - offered else None


def _meaning(message: dict[str, Any]) -> list[Any]:
  """A message less its ids, so that equal conversations are found equal."""
  calls = [call["function"] for call in message.get("tool_calls") or []]
  return [message["role"], message.get("content"), calls]


def _load(place: Path) -> list[Trajectory]:
  path = place / "trajectories.jsonl" if place.is_dir() else place
  if not path.is_file():
    raise UserError(
        f"there is no {path}; python -m sandbox.rollout writes it when it is done"
    )
  try:
    return [trajectory_from_record(record) for record in read_lines(path)]
  except (TypeError, KeyError) as error:
    raise RecordError(f"{path} holds a line that is no trajectory: {error}") from None


def main() -> dict[str, Any]:
  if _TO.value != "chat_jsonl":
    raise UserError(f"--to={_TO.value} isn't built in yet; use --to=chat_jsonl")
  trajectories = _load(Path(_TRAJECTORIES.value))
  kept, dropped = curate(
      trajectories, min_reward=_MIN_REWARD.value, max_per_task=_MAX_PER_TASK.value
  )
  counts = ", ".join(f"{n} {cause}" for cause, n in dropped.items()) or "nothing"
  if not kept:
    raise UserError(f"nothing to keep of {len(trajectories)} trajectories: {counts}")
  lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in kept]
  write_atomic(Path(_OUT.value), "".join(lines).encode(errors="replace"))
  print(f"kept {len(kept)} of {len(trajectories)}; dropped {counts}")
  return {"read": len(trajectories), "kept": len(kept), "dropped": dropped}


if __name__ == "__main__":
  cli.run(main)
