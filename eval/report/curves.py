"""Training metrics as charts: which columns go together, titles and units.

Known columns get a chart with a title and a unit; every other numeric column
is shown under its own name, so nothing that was measured is lost.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

MAX_POINTS = 600  # more than a chart has pixels; beyond, points are bin means

# (title, unit, ((column, label), …)); a chart is drawn for the columns present
_SUPERVISED = (
    ("Loss", "nats per token", (("loss", "training"), ("eval_loss", "held-out"))),
    ("Entropy", "nats per token", (("entropy", "entropy"),)),
    ("Gradient norm", "before clipping", (("gradient_norm", "norm"),)),
    ("Learning rate", "per update", (("learning_rate", "learning rate"),)),
    ("Speed", "tokens per second", (("tokens_per_second", "speed"),)),
)
_REINFORCEMENT = (
    ("Reward", "mean over rollouts", (("reward_mean", "reward"),)),
    ("Length", "sampled tokens per rollout", (("tokens_per_rollout", "length"),)),
    ("Turns", "model calls per rollout", (("turns_mean", "turns"),)),
    (
        "Groups without a signal",
        "share with all rewards equal",
        (("zero_variance_share", "share"),),
    ),
    ("Entropy", "nats per token", (("entropy", "entropy"),)),
    (
        "Engine against trainer",
        "largest difference of log-probs",
        (("mismatch_max", "difference"),),
    ),
)
_NEVER = ("step", "time", "timestamp", "seed")


def charts(rows: list[dict[str, Any]]) -> dict[str, Any]:
  """The chart set of one metrics file, as JSON.

  Returns {"x": [{"label", "values"}, …], "main": [chart, …], "other": [chart,
  …], "binned": rows per point}; a chart is {"title", "unit", "series":
  [{"label", "values"}, …]} and a value that is missing or not finite is None.
  """
  columns = _derived(_columns(rows))
  width = -(-len(rows) // MAX_POINTS)
  if width > 1:
    columns = {
        name: [_mean(values[i : i + width]) for i in range(0, len(rows), width)]
        for name, values in columns.items()
    }
  axes = [
      {"label": label, "values": columns[name]}
      for name, label in (("step", "step"), ("trained_so_far", "trained tokens"))
      if name in columns and None not in columns[name] and _rising(columns[name])
  ]
  known = _REINFORCEMENT if "reward_mean" in columns else _SUPERVISED
  main, used = [], {*_NEVER, "trained_so_far"}
  for title, unit, series in known:
    present = [(c, label) for c, label in series if c in columns]
    used.update(c for c, _ in present)
    if present:
      main.append({
          "title": title,
          "unit": unit,
          "series": [{"label": lab, "values": columns[c]} for c, lab in present],
      })
  other = [
      {"title": name, "unit": "", "series": [{"label": name, "values": values}]}
      for name, values in columns.items()
      if name not in used and len(set(values)) > 1
  ]
  return {"x": axes, "main": main, "other": other, "binned": width}


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[float | None]]:
  names = dict.fromkeys(name for row in rows for name in row)
  columns = {n: [_number(row.get(n)) for row in rows] for n in names}
  return {n: v for n, v in columns.items() if any(x is not None for x in v)}


def _derived(columns: dict[str, list[float | None]]) -> dict[str, list[float | None]]:
  """Adds what a step's counts amount to: tokens so far, tokens per rollout."""
  if "trained_tokens" in columns:
    columns["trained_so_far"] = list(
        itertools.accumulate(n or 0 for n in columns["trained_tokens"])
    )
  if "sampled_tokens" in columns and "trajectories" in columns:
    columns["tokens_per_rollout"] = [
        tokens / rollouts if tokens is not None and rollouts else None
        for tokens, rollouts in zip(columns["sampled_tokens"], columns["trajectories"])
    ]
  return columns


def _number(value: Any) -> float | None:
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    return None
  return value if math.isfinite(value) else None


def _mean(values: list[float | None]) -> float | None:
  known = [v for v in values if v is not None]
  return sum(known) / len(known) if known else None


def _rising(values: list[float | None]) -> bool:
  return all(a < b for a, b in zip(values, values[1:]))
