"""Means, intervals and comparisons of scores, as pure functions.

The unit is the task: attempts at one task are not independent, so every
interval treats a task with all its attempts as one draw, and every task weighs
the same however many of its attempts could be scored. Values that were not
measured are never passed in; what can't be known is `None`, not 0.

`Scores` maps a task's id to the scores of its attempts, each in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Scores = Mapping[str, Sequence[float]]

CONFIDENCE = 0.95
_Z = 1.959963984540054  # two-sided 95 % quantile of the normal distribution
_CHUNK = 4_000_000  # indices drawn at once, to bound memory


@dataclass(frozen=True)
class Interval:
  """A 95 % interval, in the units of what it is of."""

  low: float
  high: float


@dataclass(frozen=True)
class Difference:
  """`after` minus `before` over the tasks that both have scores for.

  `tasks` were compared; `better`, `worse` and `same` split them by the sign of
  the difference of the task's means. `left_out` had scores in one run only.
  """

  mean: float | None
  interval: Interval | None
  tasks: int
  better: int
  worse: int
  same: int
  left_out: int


def task_means(scores: Scores) -> dict[str, float]:
  """The mean score of each task that has at least one."""
  return {task: math.fsum(s) / len(s) for task, s in scores.items() if len(s)}


def mean(scores: Scores) -> float | None:
  """The mean over tasks of each task's mean; None without a score."""
  means = task_means(scores)
  return math.fsum(means.values()) / len(means) if means else None


def bootstrap_interval(
    scores: Scores, *, resamples: int = 10_000, seed: int = 0
) -> Interval | None:
  """Percentile bootstrap of `mean`, clustered by task (Efron 1979).

  None for fewer than two tasks: the spread between tasks is then unknown.
  """
  return _bootstrap(list(task_means(scores).values()), resamples, seed)


def wilson_interval(successes: float, total: int) -> Interval | None:
  """Wilson's score interval (1927) for a rate; None for a total of 0.

  `successes` may be fractional: a task solved in half of its attempts counts
  a half, which keeps the task, not the attempt, as the unit.
  """
  if not total:
    return None
  if not 0 <= successes <= total:
    raise ValueError(f"{successes} successes of {total}")
  rate, z2 = successes / total, _Z * _Z
  centre = (rate + z2 / (2 * total)) / (1 + z2 / total)
  half = (_Z / (1 + z2 / total)) * math.sqrt(
      rate * (1 - rate) / total + z2 / (4 * total * total)
  )
  # at the ends rounding would leave a bound a hair off the exact 0 or 1
  low = 0.0 if successes == 0 else max(0.0, centre - half)
  high = 1.0 if successes == total else min(1.0, centre + half)
  return Interval(low, high)


def paired_difference(
    before: Scores, after: Scores, *, resamples: int = 10_000, seed: int = 0
) -> Difference:
  """Compares two runs task by task: a bootstrap over the tasks' differences.

  Pairing removes how hard each task is from the comparison, so the interval
  is the right one for "did it change", where two separate ones are too wide.
  """
  old, new = task_means(before), task_means(after)
  common = sorted(old.keys() & new.keys())
  deltas = [new[task] - old[task] for task in common]
  better = sum(d > 1e-12 for d in deltas)
  worse = sum(d < -1e-12 for d in deltas)
  return Difference(
      mean=math.fsum(deltas) / len(deltas) if deltas else None,
      interval=_bootstrap(deltas, resamples, seed),
      tasks=len(common),
      better=better,
      worse=worse,
      same=len(common) - better - worse,
      left_out=len(old.keys() ^ new.keys()),
  )


def pass_at_k(attempts: int, successes: int, k: int) -> float:
  """Unbiased probability that one of k attempts succeeds (Chen et al. 2021).

  1 - C(n - c, k) / C(n, k); needs k <= n.
  """
  if not 0 <= successes <= attempts or not 1 <= k <= attempts:
    raise ValueError(f"pass@{k} of {successes}/{attempts} is not defined")
  return 1.0 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def _bootstrap(
    values: Sequence[float], resamples: int, seed: int
) -> Interval | None:
  if len(values) < 2:
    return None
  array = np.asarray(values, np.float64)
  rng = np.random.default_rng(seed)
  rows = max(1, _CHUNK // len(array))
  means = np.concatenate([
      array[rng.integers(0, len(array), (min(rows, resamples - i), len(array)))]
      .mean(axis=1)
      for i in range(0, resamples, rows)
  ])
  tail = (1 - CONFIDENCE) / 2
  low, high = np.quantile(means, [tail, 1 - tail])
  return Interval(float(low), float(high))
