"""Chooses the trajectories worth learning from; `python -m sandbox.curate`.

Their reward is what the code checks gave, whatever a rubric asks besides. What is
left out is counted by its cause, and no trajectory is counted twice. A conversation
that was rewritten under way gives its last branch; the other branches are counted
too.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from clawgym_jax.contracts.trajectory import Trajectory

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
        "reward": trajectory.outcome.code,
    })
  return kept, dict(dropped)


def _fault(trajectory: Trajectory, min_reward: float) -> str | None:
  """Why a trajectory can't be learnt from, or None."""
  if trajectory.outcome.status == "unscored":
    return "unscored"
  if trajectory.outcome.code < min_reward:
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
  if any("parse_error" in step.response for step in chain):
    return "unread_call"  # every answer is trained on, so this one would be
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
