"""A rubric: what is judged of an attempt where code can't see.

rubric.json of a task is a list of 1 to 8 criteria. A criterion looks at one
file of the workspace, or at the final message and the transcript, and says
what earns each of five levels. Who judges gives one level for each criterion;
`judged` is the only way in which those enter an outcome.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError, require
from clawgym_jax.contracts.files import inside
from clawgym_jax.contracts.trajectory import RUBRIC_UNJUDGED, Outcome, hybrid

LEVELS = {"0": 0.0, "0.25": 0.25, "0.5": 0.5, "0.75": 0.75, "1": 1.0}
MOST_CRITERIA = 8
_MOST_TEXT = 2000  # characters


@dataclass(frozen=True)
class Criterion:
  """One thing to judge.

  Attributes:
    name: unique within the rubric.
    file_path: the file looked at, in the workspace as the agent left it; "" is
      the final message and the transcript.
    criterion: what is looked at, as a question.
    scores: what earns each of `LEVELS`, by its name.
    weight: its share in the rubric, relative to the others'.
  """

  name: str
  file_path: str
  criterion: str
  scores: dict[str, str]
  weight: float = 1.0

  def __post_init__(self) -> None:
    for field in ("name", "criterion"):
      _check_text(field, getattr(self, field))
    require(
        isinstance(self.file_path, str)
        and (self.file_path == "" or inside(self.file_path)),
        f"file_path {self.file_path!r} is no path inside the workspace",
    )
    require(
        isinstance(self.scores, dict) and self.scores.keys() == LEVELS.keys(),
        f"scores must say what earns each of {', '.join(LEVELS)}",
    )
    for level, text in self.scores.items():
      _check_text(f"the text of level {level}", text)
    require(
        isinstance(self.weight, (int, float))
        and not isinstance(self.weight, bool)
        and math.isfinite(self.weight)
        and self.weight > 0,
        f"weight {self.weight!r} is not above 0",
    )


def read_rubric(path: Path) -> tuple[Criterion, ...]:
  """The criteria in a rubric.json, none where there is no such file."""
  try:
    raw = json_text.parse(path.read_text())
  except FileNotFoundError:
    return ()
  except ValueError as error:
    raise RecordError(f"{path} is not JSON: {error}") from None
  return rubric_from_record(raw, str(path))


def rubric_from_record(raw: Any, where: str) -> tuple[Criterion, ...]:
  """Criteria from what `rubric_record` gives; `RecordError` names `where`."""
  require(isinstance(raw, list), f"{where} is no list of criteria")
  found: list[Criterion] = []
  for number, entry in enumerate(raw, 1):
    require(isinstance(entry, dict), f"{where}: criterion {number} is no object")
    try:
      found.append(Criterion(**entry))
    except (RecordError, TypeError) as error:
      raise RecordError(f"{where}: criterion {number}: {error}") from None
  _check_whole(found, where)
  return tuple(found)


def rubric_record(criteria: Sequence[Criterion]) -> list[dict[str, Any]]:
  """The contents of rubric.json; `RecordError` where they can't be those."""
  _check_whole(criteria, "the rubric")
  return [dataclasses.asdict(criterion) for criterion in criteria]


def weighted(criteria: Sequence[Criterion], values: Mapping[str, float]) -> float:
  """The rubric's value, in [0, 1], from that of each criterion by its name.

  `RecordError` unless there is one of the five levels for each criterion and
  nothing else: what a judge left out is never taken as 0 nor left out here.
  """
  names = {criterion.name for criterion in criteria}
  require(
      bool(names) and values.keys() == names,
      f"judged were {sorted(values)}, not the criteria {sorted(names)}",
  )
  for name, value in values.items():
    require(
        value in LEVELS.values(), f"{name} = {value!r} is none of {list(LEVELS)}"
    )
  total = math.fsum(criterion.weight for criterion in criteria)
  mean = math.fsum(c.weight * values[c.name] for c in criteria) / total
  return min(1.0, max(0.0, mean))  # rounding alone can leave [0, 1]


def judged(
    outcome: Outcome, criteria: Sequence[Criterion], values: Mapping[str, float]
) -> Outcome:
  """The outcome of the task's checks with what a judge gave for its criteria."""
  require(outcome.code is not None, "a rubric is judged after the checks have")
  rubric = weighted(criteria, values)
  waited = outcome.cause == RUBRIC_UNJUDGED
  return dataclasses.replace(
      outcome,
      score=hybrid(outcome.code, rubric),
      rubric=rubric,
      criteria=dict(values),
      cause=None if waited else outcome.cause,
  )


def _check_text(what: str, text: Any) -> None:
  require(
      isinstance(text, str)
      and bool(text.strip())
      and len(text) <= _MOST_TEXT
      and text.encode(errors="ignore").decode() == text,  # no half surrogate pair
      f"{what} must be a text of 1 to {_MOST_TEXT} characters",
  )


def _check_whole(criteria: Sequence[Criterion], where: str) -> None:
  count = len(criteria)
  require(
      1 <= count <= MOST_CRITERIA,
      f"{where} has {count} criteria, not 1 to {MOST_CRITERIA}",
  )
  names = [criterion.name for criterion in criteria]
  twice = sorted({name for name in names if names.count(name) > 1})
  require(not twice, f"{where} has two criteria of the name {', '.join(twice)}")
