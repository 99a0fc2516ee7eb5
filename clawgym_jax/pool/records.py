"""What the pool hands out, and the two ways in which a hold on it is lost."""

from __future__ import annotations

from dataclasses import dataclass

from clawgym_jax.contracts.trajectory import Trajectory


class AttemptGone(Exception):
  """The attempt is finished, or its lease expired and another one took over."""


class LeaseLost(Exception):
  """A group is no longer leased by this owner: another consumer holds it."""


@dataclass(frozen=True)
class Attempt:
  """One claimed try at one sample of a group. `attempt` counts from 0."""

  trajectory_id: str
  group_id: str
  task_dir: str
  sample_index: int
  attempt: int


@dataclass(frozen=True)
class Group:
  """A finished group: its scored and truncated trajectories by sample index.

  `unscored` samples were planned but could not be judged within the allowed
  attempts; they have no trajectory here and enter no baseline.
  """

  group_id: str
  task_dir: str
  trajectories: list[Trajectory]
  unscored: int
