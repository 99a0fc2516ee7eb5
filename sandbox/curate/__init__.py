"""Chooses the trajectories worth learning from; `python -m sandbox.curate`.

Their reward is what the code checks gave, whatever a rubric asks besides. What is
left out is counted by its cause. An attempt whose user opened several conversations
gives each of them, as a line of its own: that is the context in which its answers
were sampled. A conversation that was rewritten under way gives its last branch; the
other branches are counted too.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from clawgym_jax.contracts.trajectory import Step, Trajectory

_HEARTBEATS = ("HEARTBEAT_OK", "NO_REPLY")


def curate(
    trajectories: list[Trajectory], *, min_reward: float, max_per_task: int
) -> tuple[list[dict[str, Any]], dict[str, int]]:
  """The kept conversations, in order, and how many were dropped by cause: whole
  trajectories, and of kept ones conversations that are there already and branches.
  """
  kept, dropped = [], Counter()
  seen: set[str] = set()
  per_task: Counter[str] = Counter()
  for trajectory in trajectories:
    ends = trajectory.conversations()
    chains = [trajectory.chain(leaf) for leaf in ends]
    cause = _fault(trajectory, chains, min_reward)
    lines = [] if cause else [_line(trajectory, leaf) for leaf in ends]
    new = {d: line for line in lines if (d := _digest(line["messages"])) not in seen}
    if not cause and not new:
      cause = "duplicate"
    elif not cause and per_task[trajectory.task_id] >= max_per_task:
      cause = "over_cap_of_task"
    if cause:
      dropped[cause] += 1
      continue
    seen |= new.keys()
    per_task[trajectory.task_id] += 1
    kept += new.values()
    for what, count in (
        ("earlier_branch", len(trajectory.leaves()) - len(ends)),
        ("conversation_again", len(lines) - len(new)),
    ):
      if count:
        dropped[what] += count
  return kept, dict(dropped)


def _line(trajectory: Trajectory, leaf: Step) -> dict[str, Any]:
  return {
      "messages": trajectory.conversation(leaf),
      "tools": trajectory.chain(leaf)[0].tools or [],
      "task_id": trajectory.task_id,
      "reward": trajectory.outcome.code,
  }


def _fault(
    trajectory: Trajectory, chains: list[list[Step]], min_reward: float
) -> str | None:
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
  causes = [cause for chain in chains if (cause := _fault_of_chain(chain))]
  return causes[0] if causes else None


def _fault_of_chain(chain: list[Step]) -> str | None:
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


def _digest(messages: list[dict[str, Any]]) -> str:
  """Equal for conversations that differ in ids only."""
  meant = [_meaning(message) for message in messages]
  return hashlib.sha256(json.dumps(meant, sort_keys=True).encode()).hexdigest()


def _meaning(message: dict[str, Any]) -> list[Any]:
  """A message less its ids."""
  calls = [call["function"] for call in message.get("tool_calls") or []]
  return [message["role"], message.get("content"), calls]
