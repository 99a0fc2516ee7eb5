"""Advantages of one group: trajectories of one task, whatever their steps.

A baseline is over trajectories, so it doesn't depend on how a trajectory is
cut into model calls. An unscored trajectory (None) has no advantage and
leaves those of its siblings as if it had never been planned.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_EPSILON = 1e-6


def group_advantages(
    rewards: Sequence[float | None], method: str = "grpo"
) -> list[float | None]:
  """The advantage of each trajectory of a group.

  Args:
    rewards: one a trajectory; None where unscored.
    method: `grpo`, (R - mean) / (std + 1e-6) with the unbiased std
      (arXiv 2402.03300); `dr_grpo`, R - mean (arXiv 2503.20783).

  Returns:
    One a trajectory, None where unscored. A group without variance, or with
    one scored trajectory, gives 0.
  """
  if method not in ("grpo", "dr_grpo"):
    raise ValueError(f"unknown advantage {method!r}")
  scored = np.array([r for r in rewards if r is not None], np.float64)
  if not has_signal(rewards):
    return [None if r is None else 0.0 for r in rewards]
  mean = scored.mean()
  scale = scored.std(ddof=1) + _EPSILON if method == "grpo" else 1.0
  return [None if r is None else float((r - mean) / scale) for r in rewards]


def has_signal(rewards: Sequence[float | None]) -> bool:
  """Whether any two scored trajectories of the group differ in reward."""
  return len({r for r in rewards if r is not None}) > 1
