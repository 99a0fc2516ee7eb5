"""Trajectories of one step's groups as training rows, by their exact ids.

Every sampled token is trained exactly once, in the context it was sampled in,
or counted as dropped with its cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.row import Row
from clawgym_jax.contracts.trajectory import Outcome, Step, Trajectory
from clawgym_jax.data import trajectories
from clawgym_jax.data.packing import plan
from clawgym_jax.data.sequence import Sequence
from clawgym_jax.data.tree import Tree
from clawgym_jax.pool import Group
from clawgym_jax.rl.advantages import group_advantages, has_signal


@dataclass
class Experience:
  """What one step's groups give to learn from, and what they don't.

  `dropped` counts sampled tokens that are not trained, by cause.
  """

  rows: list[Row] = field(default_factory=list)
  rewards: list[float] = field(default_factory=list)
  groups: int = 0
  zero_variance: int = 0
  unscored: int = 0
  trajectories: int = 0  # that are trained
  trained_tokens: int = 0
  sampled_tokens: int = 0
  dropped: Counter[str] = field(default_factory=Counter)


def experience(
    groups: Iterable[Group],
    *,
    row_length: int,
    advantage: str,
    reward: str,
    temperature: float,
) -> Experience:
  """Lays out every group that has a signal; `temperature` is that of sampling."""
  made = Experience()
  sequences: list[Sequence] = []
  for group in groups:
    rewards = [reward_of(t.outcome, reward) for t in group.trajectories]
    made.groups += 1
    made.unscored += group.unscored
    made.rewards += [r for r in rewards if r is not None]
    signal = has_signal(rewards)
    made.zero_variance += not signal
    for trajectory, value in zip(
        group.trajectories, group_advantages(rewards, advantage)
    ):
      sampled = sum(len(s.response_ids or ()) for s in trajectory.steps)
      made.sampled_tokens += sampled
      if not signal or value is None:
        made.dropped[_cause(trajectory.outcome, value, signal)] += sampled
        continue
      made.trajectories += 1
      for sequence in sequences_of(trajectory, value, temperature):
        if len(sequence) > row_length:
          made.dropped["longer than a row"] += sequence.trained_tokens
        else:
          made.trained_tokens += sequence.trained_tokens
          sequences.append(sequence)
  made.rows = [
      Tree(sequences[i] for i in members).row(row_length)
      for members in plan(sequences, row_length)
  ]
  return made


def sequences_of(
    trajectory: Trajectory, advantage: float, temperature: float
) -> list[Sequence]:
  """One sequence for each leaf of the trajectory's tree of steps."""
  for step in trajectory.steps:
    _check_sampling(step, temperature)
  return trajectories.sequences_of(trajectory, advantage)


def reward_of(outcome: Outcome, which: str) -> float | None:
  """`code` or `score`; None where there is none, as of a rubric that nobody judged."""
  return outcome.code if which == "code" else outcome.score


def _cause(outcome: Outcome, value: float | None, signal: bool) -> str:
  """Why a trajectory with this advantage is not trained."""
  if value is None and outcome.awaits_rubric:
    return "rubric not judged"
  return "unscored" if signal else "no signal in the group"


def _check_sampling(step: Step, temperature: float) -> None:
  """Log-probs of the sampled distribution must be what the trainer computes."""
  if step.response_ids is None:
    raise UserError(
        f"step {step.step_id} has text without token ids: reinforcement learning"
        " needs an upstream that gives tokens"
    )
  used = step.sampling.get("temperature", 1.0), step.sampling.get("top_p", 1.0)
  if used != (temperature, 1.0):
    raise UserError(
        f"step {step.step_id} was sampled at temperature {used[0]} and top_p"
        f" {used[1]}, not at {temperature} and 1: the trainer's log-probs would be"
        " of another distribution"
    )
