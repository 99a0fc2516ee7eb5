"""Which tasks have a rubric, and what it asks: one task in four, two to four criteria.

The first criterion is whether the closing message is true; one about a file that
is handed over follows where any template is for it, then others that fit the
person, the skills and the chores. All of it is drawn beside the request: a task
is otherwise the same with and without, and the rubric is the same over other records.
"""

from __future__ import annotations

import random

from clawgym_jax.contracts.rubric import LEVELS, Criterion
from data_gen.compose.criteria import CLOSING, FILES, TONE, WORK, Template
from data_gen.compose.part import Part
from data_gen.compose.personas import Persona
from data_gen.compose.setting import Setting

_BLOCK, _HYBRID = 8, 2  # of so many tasks in a row, so many have a rubric
_MOST_MORE = 2  # criteria beside the first and that of a file


def hybrid(seed: int, split: str, index: int) -> bool:
  """Whether task `index` has a rubric: a quarter of any long run of tasks."""
  block, place = divmod(index, _BLOCK)
  draw = random.Random(f"hybrid {seed} {split} {block}")
  return place in draw.sample(range(_BLOCK), _HYBRID)


def rubric(
    setting: Setting, asker: Persona, part: Part, skills: tuple[str, ...]
) -> tuple[Criterion, ...]:
  """The criteria for this work, asked by this person."""
  draw = setting.beside("rubric").rng
  about = {s["kind"] for s in part.deliverables.values()} | set(part.deliverables)
  about |= {asker.style, *(["skills"] if skills else [])}
  first, *closing = CLOSING
  more = [t for t in (*closing, *TONE, *WORK) if not t.of or about & set(t.of)]
  chosen = [(first, "")]
  files = _of_files(part)
  if files:
    chosen.append(draw.choice(files))
  chosen += [(t, "") for t in draw.sample(more, draw.randint(1, _MOST_MORE))]
  return tuple(_criterion(template, path) for template, path in chosen)


def _of_files(part: Part) -> list[tuple[Template, str]]:
  """The templates for the files that the work hands over, each with its file."""
  return [
      (template, spec["path"])
      for name, spec in part.deliverables.items()
      for template in FILES
      if {name, spec["kind"]} & set(template.of)
  ]


def _criterion(template: Template, path: str) -> Criterion:
  return Criterion(
      name=template.name,
      file_path=path,
      criterion=template.asks.format(path=path),
      scores=dict(zip(LEVELS, template.levels, strict=True)),
  )
