"""What a family makes of a world, before it becomes a task directory.

The expected data comes from the family's own model of the data (the rows it
drew), never from running the solution. Every input file that the task does
not change is guarded by its hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from clawgym_jax.contracts.task import SolutionCall
from data_gen.world import World

Deliverable = dict[str, Any]


@dataclass
class Draft:
  """One task of a family.

  Attributes:
    facts: what the templates name, by placeholder.
    workspace: input files by path; text or bytes.
    calls: the reference solution.
    deliverables: what the checks look at, by name (kinds: data_gen.grader).
    final_message: what the agent says at the end.
    changed: input files that the task changes, moves or removes.
  """

  facts: dict[str, str]
  workspace: dict[str, str | bytes]
  calls: list[SolutionCall]
  deliverables: dict[str, Deliverable]
  final_message: str
  changed: frozenset[str] = frozenset()

  def files(self) -> dict[str, bytes]:
    return {
        path: data.encode() if isinstance(data, str) else data
        for path, data in sorted(self.workspace.items())
    }

  def expected(self) -> dict[str, Any]:
    """The contents of checks/expected.json."""
    return {
        "deliverables": self.deliverables,
        "unchanged": {
            path: hashlib.sha256(data).hexdigest()
            for path, data in self.files().items()
            if path not in self.changed
        },
    }


@dataclass(frozen=True)
class Family:
  """A kind of task: one command pattern, many phrasings, endless literals.

  Attributes:
    templates: at least six phrasings, with `{placeholders}` from the facts.
    goal, bullets: the same request as a list; bullets are (label, placeholder).
    vocabulary: the fixed words of the command pattern; every other word in the
      solution comes from the instruction or from an earlier tool result.
    calls: how many tool calls solve it.
  """

  name: str
  category: str
  macro_category: str
  operations: tuple[str, ...]
  calls: int
  templates: tuple[str, ...]
  goal: str
  bullets: tuple[tuple[str, str], ...]
  vocabulary: frozenset[str]
  build: Callable[[World], Draft] = field(repr=False)

  def request(self, world: World, draft: Draft, style: str) -> str:
    if style == "bulleted":
      lines = [f"- {label}: {draft.facts[key]}" for label, key in self.bullets]
      return "\n".join([self.goal, *lines])
    return world.rng.choice(self.templates).format(**draft.facts)


REGISTRY: dict[str, Family] = {}


def family(
    *,
    category: str,
    macro: str,
    operations: str,
    calls: int,
    templates: Iterable[str],
    goal: str,
    bullets: Iterable[tuple[str, str]],
    vocabulary: str,
) -> Callable[[Callable[[World], Draft]], Callable[[World], Draft]]:
  """Registers the decorated function as the family of its name."""

  def register(build: Callable[[World], Draft]) -> Callable[[World], Draft]:
    REGISTRY[build.__name__] = Family(
        name=build.__name__,
        category=category,
        macro_category=macro,
        operations=tuple(operations.split()),
        calls=calls,
        templates=tuple(templates),
        goal=goal,
        bullets=tuple(bullets),
        vocabulary=frozenset(vocabulary.split()),
        build=build,
    )
    return build

  return register


def exec_call(command: str) -> SolutionCall:
  return SolutionCall("exec", {"command": command})


def read_call(path: str) -> SolutionCall:
  return SolutionCall("read", {"path": path})


def write_call(path: str, content: str) -> SolutionCall:
  return SolutionCall("write", {"path": path, "content": content})


def edit_call(path: str, old: str, new: str) -> SolutionCall:
  return SolutionCall(
      "edit", {"path": path, "edits": [{"oldText": old, "newText": new}]}
  )


def text(path: str, content: str) -> Deliverable:
  """The file's lines, trailing blanks aside, are those of `content`."""
  lines = [line.rstrip() for line in content.rstrip().split("\n")]
  return {"kind": "text", "path": path, "lines": lines}


def number(path: str, value: float) -> Deliverable:
  return {"kind": "number", "path": path, "value": value}


def moved(source: str, path: str, content: str) -> Deliverable:
  """`content` is at `path` and no longer at `source`."""
  return {**text(path, content), "kind": "moved", "source": source}


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
  """CSV text; no cell of a world needs quoting."""
  return "\n".join(",".join(map(str, row)) for row in (list(header), *rows)) + "\n"
