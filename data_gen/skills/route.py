"""The skill-grounded route: a task whose work needs what its skills say.

A primary skill and up to three others, all about modules of the task's graph,
lie in the workspace at skills/NAME/SKILL.md. House rules are added at their
ends; the request says that there are rules, only the skills say which. All of
it comes from the frame, so the rules are the same over other records. A
third of the skills is reserved for the held-out split, by their names.
"""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass

from data_gen.compose import compose
from data_gen.compose.graph import Graph
from data_gen.compose.hazards import Hazard
from data_gen.compose.operations import Chain, Step
from data_gen.compose.part import Part
from data_gen.compose.records import Ruled
from data_gen.compose.setting import Setting
from data_gen.compose.sinks import Sink
from data_gen.compose.table import Table
from data_gen.draft import exec_call, read_call
from data_gen.skills.about import About, about
from data_gen.skills.needs import needs
from data_gen.skills.rules import RULES, Rule
from data_gen.skills.skill import Library, Skill, own

MOST_SUPPORTING = 3
_MOST_RULES = {"primary": 2, "supporting": 1}
_HEADINGS = ("House rules", "In this workspace", "How we do it here", "Conventions")
_WHERE = (
    "in the skill {name}",
    "in skills/{name}/SKILL.md",
    "that you find under skills/",
)


@dataclass(frozen=True)
class _Known:
  """A usable skill and what it is about."""

  skill: Skill
  about: About
  heldout: bool


def build(
    graph: Graph,
    setting: Setting,
    library: Library | None = None,
    *,
    hazard: Hazard | None = None,
) -> Part | None:
  """The work of a task with skills (ours, if no library is given), or None where
  this setting draws nothing sound for it or no skill is about the graph."""
  skills = _about(graph, setting.heldout, library)
  if not skills:
    return None
  draw = setting.beside("skills")
  house = lambda done, sink: _ruled(draw, skills, done, sink)
  return compose.build(graph, setting, house, hazard=hazard)


def covers(graph: Graph, split: str, library: Library | None = None) -> bool:
  """Whether any skill of this split is about the graph, so that `build` may give
  a task."""
  return bool(_about(graph, split == "heldout", library))


def placed(part: Part) -> tuple[str, ...]:
  """The names of the skills in a workspace."""
  parts = (path.split("/") for path in sorted(part.workspace))
  return tuple(p[1] for p in parts if p[0] == "skills" and p[2:] == ["SKILL.md"])


@functools.lru_cache(maxsize=1024)
def _about(
    graph: Graph, heldout: bool, library: Library | None
) -> tuple[tuple[_Known, frozenset[str]], ...]:
  """The skills of a split that are about a graph, and the modules they are about."""
  skills = [
      (known, known.about.touched(graph))
      for known in _usable(library or own())
      if known.heldout == heldout
  ]
  return tuple((known, touched) for known, touched in skills if touched)


@functools.cache
def _usable(library: Library) -> tuple[_Known, ...]:
  """The skills that need nothing which a sandbox lacks. Of one or two all are for
  training: who points at a folder of a few skills wants tasks with them."""
  usable = [skill for skill in library.skills if needs(skill).usable]
  mixed = sorted(usable, key=lambda s: (zlib.crc32(s.name.encode()), s.name))
  reserved = {skill.name for skill in mixed[: len(mixed) // 3]}
  return tuple(_Known(s, about(s), s.name in reserved) for s in usable)


def _ruled(
    draw: Setting,
    skills: tuple[tuple[_Known, frozenset[str]], ...],
    done: Chain,
    sink: Sink,
) -> Ruled | None:
  """The skills of a task and their rules; None without a rule."""
  drawing = _Drawing(draw, done.result, sink)
  left = _weighted(draw, skills)
  chosen: list[tuple[_Known, list[Rule]]] = []
  for entry in left:
    if rules := drawing.rules(entry[0], _MOST_RULES["primary"]):
      chosen.append((entry[0], rules))
      left.remove(entry)
      break
  else:
    return None
  for known, _ in left[: draw.rng.randint(0, MOST_SUPPORTING)]:
    chosen.append((known, drawing.rules(known, _MOST_RULES["supporting"])))
  kept = [name for name in RULES if name in drawing.found]
  handed = [r.handed for name in kept if (r := drawing.found[name]).handed]

  def finish(part: Part) -> Part:
    for one in handed:
      part = one(part)
    return part

  return Ruled(_reading(draw, chosen), tuple(drawing.steps), finish)


def _weighted(
    draw: Setting, skills: tuple[tuple[_Known, frozenset[str]], ...]
) -> list[tuple[_Known, frozenset[str]]]:
  """All of them, those that speak of more modules first more often."""
  keyed = [
      (max(draw.rng.random() for _ in touched), known.skill.name, (known, touched))
      for known, touched in skills
  ]
  return [entry for _, _, entry in sorted(keyed, key=lambda k: k[:2], reverse=True)]


class _Drawing:
  """Draws rules one after another, each for the table as the others leave it."""

  def __init__(self, draw: Setting, table: Table, sink: Sink):
    self._draw, self._table, self._sink = draw, table, sink
    self._groups: set[str] = set()
    self.found: dict[str, Rule] = {}
    self.steps: list[Step] = []

  def rules(self, known: _Known, most: int) -> list[Rule]:
    """Up to `most` rules for a skill; one at least where any fits."""
    draw, found = self._draw, []
    count = draw.rng.randint(1, most)
    where = draw.rng.choice(_WHERE).format(name=known.skill.name)
    for name in draw.rng.sample(known.about.rules, len(known.about.rules)):
      kind = RULES[name]
      if len(found) == count or kind.group in self._groups:
        continue
      rule = kind.make(draw.beside(name), self._table, self._sink, where)
      if rule is None:
        continue
      self._groups.add(kind.group)
      self.found[name] = rule
      found.append(rule)
      if rule.step:
        self.steps.append(rule.step)
        self._table = rule.step.table
    return found


def _reading(draw: Setting, chosen: list[tuple[_Known, list[Rule]]]) -> Part:
  """The skills in the workspace, and the calls that read them."""
  files, reads = {}, []
  for known, rules in sorted(chosen, key=lambda c: c[0].skill.name):
    path = f"skills/{known.skill.name}/SKILL.md"
    text = known.skill.text.rstrip() + "\n"
    if rules:
      lines = "".join(f"- {rule.text}\n" for rule in rules)
      text += f"\n## {draw.rng.choice(_HEADINGS)}\n\n{lines}"
    files[path] = text.encode()
    reads.append(read_call(path))
  return Part("", [exec_call("head -n 4 skills/*/SKILL.md"), *reads], files, {}, "")
