"""What a pattern is, the table of all of them, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from clawgym_jax.contracts.task import SolutionCall
from data_gen.compose.chores.registry import lines, text
from data_gen.compose.graph import Graph
from data_gen.compose.operations import OPERATIONS, Step, may_follow
from data_gen.compose.part import Part
from data_gen.compose.records import Records, drawn
from data_gen.compose.setting import Setting
from data_gen.compose.table import Table
from data_gen.compose.topics import Topic
from data_gen.draft import exec_call, read_call

# Operations that a rule may be, or that make a short chain longer.
_RULES = (
    "above", "any_of_two", "below", "between", "drop_value", "keep_value", "one_of",
    "since",
)  # fmt: skip
_REDRAWS = 8


@dataclass(frozen=True)
class Asked:
  """What a pattern makes a task of; `draw` is for all that is not the records."""

  graph: Graph
  setting: Setting
  topic: Topic

  @cached_property
  def draw(self) -> Setting:
    return self.setting.beside("turns")

  def phrase(self, *wordings: str) -> str:
    """One of the ways to say it."""
    return self.draw.rng.choice(wordings)

  def records(self, graph: Graph | None = None) -> Records | None:
    return drawn(graph or self.graph, self.setting, self.topic)

  def twin(self, records: Records) -> Records | None:
    """The same work on another file of the same sort, whose result goes to another
    folder under the same name; for a graph without a second file."""
    other = drawn(self.graph, self.setting.twin(), self.topic)
    if other is None or [s.code for s in other.steps] != [
        s.code for s in records.steps
    ]:
      return None
    suffix = records.kind.suffix
    sort = self.draw.rng.choice(("later", "new", "next", "other"))
    stem = records.source.removesuffix(suffix) if suffix else records.source
    folder, _, name = records.path.rpartition("/")
    place = next(w for w in self.draw.words("target", 2) if w != folder)
    return replace(other, source=f"{stem}-{sort}{suffix}", path=f"{place}/{name}")

  def longer(self) -> tuple[Graph, int]:
    """An extensible graph with one operation more, and the number of it."""
    names = self.draw.rng.sample(_RULES, len(_RULES))
    return next(filter(None, (longer(self.graph, name) for name in names)))

  def redrawn(self, name: str, before: Table, step: Step) -> Step | None:
    """The operation `name`, of one file, on the table before `step`, with another
    choice."""
    for _ in range(_REDRAWS):
      other = OPERATIONS[name].apply(self.setting, before)
      if other is None or other.code != step.code:
        return other if other and other.table.rows else None
    return None


@dataclass(frozen=True)
class Pattern:
  """A registered pattern.

  Attributes:
    make: the task's work, or None where the setting draws nothing sound.
    fits: whether a graph can have it at all.
    atomics: the taxonomy's operations that its turns need besides the graph's.
  """

  name: str
  make: Callable[[Asked], Part | None]
  fits: Callable[[Graph], bool]
  atomics: tuple[str, ...] = ()


PATTERNS: dict[str, Pattern] = {}


def pattern(fits: Callable[[Graph], bool], *atomics: str) -> Callable:
  """Registers the decorated function under its name."""

  def register(make: Callable[[Asked], Part | None]) -> Callable:
    PATTERNS[make.__name__] = Pattern(make.__name__, make, fits, atomics)
    return make

  return register


def longer(graph: Graph, name: str) -> tuple[Graph, int] | None:
  """The graph with the operation `name` more near its start, and its number there;
  None where that is no chain."""
  names = list(graph.operations)
  at = 1 if OPERATIONS[names[0]].prepare else 0
  more = [*names[:at], name, *names[at:]]
  return (replace(graph, operations=tuple(more)), at) if may_follow(more) else None


def extensible(graph: Graph) -> bool:
  """Whether an operation can be put near the start of the chain."""
  return any(longer(graph, name) for name in _RULES)


@dataclass(frozen=True)
class Notebook:
  """A page that an agent keeps, with some lines on it already.

  `told` is how a request speaks of it when its path need not be said again.
  """

  path: str
  before: tuple[str, ...]
  told: str

  @property
  def files(self) -> dict[str, bytes]:
    return {self.path: text(self.before)}

  def noting(self, line: str) -> list[SolutionCall]:
    """A line goes to the end of the page."""
    append = exec_call(f"cat >> {self.path} <<'EOF'\n{line}\nEOF")
    return [read_call(self.path), append, read_call(self.path)]

  def page(self, *more: str) -> dict[str, Any]:
    """A deliverable: the page, with these lines at its end."""
    return lines(self.path, [*self.before, *more])


def notebook(asked: Asked) -> Notebook:
  """A page that no chore of the graph works on."""
  draw, chores = asked.draw, asked.graph.chores
  day = draw.today.isoformat()
  pages = {
      "MEMORY.md": ("# Memory", f"- {draw.colleagues[0]} leads {draw.project}."),
      f"memory/{day}.md": (f"# {day}", f"- Talked to {draw.colleagues[1]}."),
      "notes/agreed.md": ("# Agreed", f"- {draw.colleagues[2]} gets copies of mails."),
  }
  taken = {"remember": "MEMORY.md", "daily_note": f"memory/{day}.md"}
  free = sorted(pages.keys() - {taken.get(name) for name in chores})
  path = draw.rng.choice(free)
  title, first = pages[path]
  line = f"- {draw.colleagues[3]} {draw.word('persona_habit')}."
  told = draw.rng.choice((f"in {path}", f"in {path}", "in your notes"))
  return Notebook(path, (title, "", first, line), told)


def before(records: Records, number: int) -> Table:
  """The table that step `number` is given."""
  return records.steps[number - 1].table if number else records.chain.source


def worded(steps: Sequence[Step], number: int, said: str) -> list[Step]:
  """The steps, with one said otherwise."""
  return [replace(s, said=said) if n == number else s for n, s in enumerate(steps)]
