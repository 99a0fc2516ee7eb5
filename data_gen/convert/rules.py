"""Criteria for a judge from the rules of ClawGym: {name, file_path, scores}.

A rule says nothing of what is looked at but its name, which is then the
question. One that does not say what earns each level can't be judged.
"""

from __future__ import annotations

from typing import Any

from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.rubric import MOST_CRITERIA, Criterion
from data_gen.convert.losses import Losses
from sandbox.verify.clawgym import WORKSPACE


def criteria(rules: Any, losses: Losses) -> list[Criterion]:
  """Those of `rules` that can be judged, of one task; counts it if not all can."""
  found: dict[str, Criterion] = {}
  given = rules if isinstance(rules, list) else []
  for rule in given:
    one = _criterion(rule)
    if one and len(found) < MOST_CRITERIA:
      found.setdefault(one.name, one)
  if len(found) < len(given):
    losses.parts["rules of a rubric that don't say what earns each level"] += 1
  return list(found.values())


def _criterion(rule: Any) -> Criterion | None:
  try:
    name = rule["name"]
    return Criterion(
        name=name,
        file_path=rule.get("file_path", "").removeprefix(f"{WORKSPACE}/"),
        criterion=rule.get("criterion", name),
        scores={f"{float(level):g}": text for level, text in rule["scores"].items()},
        weight=rule.get("weight", 1.0),
    )
  except (RecordError, AttributeError, KeyError, TypeError, ValueError):
    return None
