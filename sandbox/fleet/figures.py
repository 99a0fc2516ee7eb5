"""How fast a run was, from what its trajectories say; so again is no change.

`attempts_per_second` counts the attempts that count, over the seconds in which
at least one of them was under way: the time in which a run was stopped is not
in it. Stages are the attempt's own: boot, work, verify.
"""

from __future__ import annotations

import math
from typing import Any

STAGES = ("boot", "work", "verify")


class Figures:
  """Sums up trajectories' metadata, some 50 bytes each."""

  def __init__(self) -> None:
    self._spans: list[tuple[float, float]] = []
    self._seconds: dict[str, list[float]] = {name: [] for name in STAGES}

  def add(self, metadata: dict[str, Any]) -> None:
    span = metadata.get("span")
    if span:
      self._spans.append((span[0], span[1]))
    for name, values in self._seconds.items():
      if name in metadata.get("seconds", {}):
        values.append(metadata["seconds"][name])

  def summary(self) -> dict[str, Any]:
    """attempts_per_second (None without any), and p50 and p95 of each stage."""
    busy = _covered(self._spans)
    stages = {
        name: {"p50": percentile(values, 0.5), "p95": percentile(values, 0.95)}
        for name, values in self._seconds.items()
        if values
    }
    return {
        "attempts_per_second": round(len(self._spans) / busy, 3) if busy else None,
        "stage_seconds": stages,
    }


def percentile(values: list[float], share: float) -> float:
  """The smallest of `values` that `share` of them do not exceed."""
  return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


def _covered(spans: list[tuple[float, float]]) -> float:
  """The length of the union of `spans`."""
  length, end = 0.0, -math.inf
  for start, stop in sorted(spans):
    length += max(0.0, stop - max(start, end))
    end = max(end, stop)
  return length
