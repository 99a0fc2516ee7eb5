"""The families of composed tasks: a frozen list, some kept for held-out tasks.

A family is a `Graph`. The list is data (families.json), so that a module that
is added changes no task of those that are there. `python -m
data_gen.compose.families` makes it longer where it is shorter than it should be,
and changes nothing that is in it: every module is used about as often as any other
of its sort, and a family is taken only if its tasks can be made in both splits
without many tries.

Each split has so many that with 200 tasks or more, however many they are, no family
has more than one in a hundred: that takes 150, as families take turns.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from clawgym_jax import cli
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.files import write_atomic
from clawgym_jax.contracts.task import SPLITS
from data_gen.compose.chores import CHORES, may_join
from data_gen.compose.compose import build
from data_gen.compose.graph import Graph
from data_gen.compose.kinds import EVERY, KINDS, MESSY
from data_gen.compose.operations import OPERATIONS, may_follow, needs_second
from data_gen.compose.setting import Setting
from data_gen.compose.sinks import SINKS

FILE = Path(__file__).with_name("families.json")
COUNT, RESERVED = 576, 160
_LENGTHS = (1, 2, 2, 2, 3, 3)  # operations in a chain
_CHORES = (0, 1, 1, 1, 2, 2)
_MESSY = 0.3  # of the sources
_TRIES, _WANTED = 12, 4  # of so many settings a split, so many give a task


@dataclass(frozen=True)
class Family:
  """A graph, its number in the list, and the split it belongs to."""

  number: int
  graph: Graph
  split: str

  @property
  def name(self) -> str:
    return f"f{self.number:03d}-{self.graph.name}"

  @property
  def operations(self) -> tuple[str, ...]:
    """The taxonomy's atomic operations of its modules, in order, each once."""
    graph = self.graph
    kinds = (graph.source, graph.second) if graph.second else (graph.source,)
    modules = (
        *(OPERATIONS[name] for name in graph.operations),
        SINKS[graph.sink],
        *(CHORES[name] for name in graph.chores),
    )
    read = (atomic for name in kinds for atomic in EVERY[name].atomics)
    return tuple(dict.fromkeys((*read, *(module.atomic for module in modules))))


@cache
def families(split: str) -> tuple[Family, ...]:
  """The families of one split, in order."""
  found = json_text.parse(FILE.read_text())
  return tuple(
      Family(number, _graph(record), record["split"])
      for number, record in enumerate(found)
      if record["split"] == split
  )


def _graph(record: dict[str, Any]) -> Graph:
  return Graph(
      record["source"],
      tuple(record["operations"]),
      record["sink"],
      tuple(record["chores"]),
      record["second"],
  )


def extended(
    known: list[dict[str, Any]], count: int = COUNT, reserved: int = RESERVED
) -> list[dict[str, Any]]:
  """`known` with new records after it up to `count`, `reserved` of all held out."""
  rng = random.Random(f"families after {len(known)}")
  graphs = {graph.name: graph for graph in map(_graph, known)}
  used = Counter(name for graph in graphs.values() for name in _modules(graph))
  bar = cli.progress(count, "families", done=len(known), unit="family")

  def least(names: Iterable[str]) -> str:
    return min(sorted(names), key=lambda name: (used[name], rng.random()))

  while len(graphs) < count:
    graph = _draw(rng, least)
    if graph.name in graphs or not _sound(graph):
      # Counted a little, or what can't be made would be drawn for ever.
      used.update({name: 0.2 for name in _modules(graph)})
      continue
    graphs[graph.name] = graph
    used.update(_modules(graph))
    bar.update()
  bar.close()
  fresh = list(graphs)[len(known) :]
  missing = reserved - sum(record["split"] == "heldout" for record in known)
  held = set(rng.sample(fresh, max(missing, 0)))
  return known + [
      {
          "source": graph.source,
          "second": graph.second,
          "operations": list(graph.operations),
          "sink": graph.sink,
          "chores": list(graph.chores),
          "split": "heldout" if name in held else "train",
      }
      for name in fresh
      for graph in (graphs[name],)
  ]


def _modules(graph: Graph) -> list[str]:
  sources = [graph.source, *([graph.second] if graph.second else [])]
  return [*sources, *graph.operations, graph.sink, *graph.chores]


def _draw(rng: random.Random, least: Any) -> Graph:
  length = rng.choice(_LENGTHS)
  chosen: list[str] = []
  for _ in range(length):
    chosen.append(least(n for n in OPERATIONS if _may(chosen, n, length)))
  source = least(KINDS)
  messes = [name for name in MESSY if name.startswith(source + "_")]
  if messes and rng.random() < _MESSY:
    source = least(messes)
  chores: list[str] = []
  for _ in range(rng.choice(_CHORES)):
    chores.append(least(name for name in CHORES if may_join([*chores, name])))
  return Graph(
      source,
      tuple(chosen),
      least(SINKS),
      tuple(chores),
      least(KINDS) if needs_second(chosen) else "",
  )


def _may(chosen: list[str], name: str, length: int) -> bool:
  """Whether `name` can come next in a chain of `length`."""
  if len(chosen) == length - 1:
    return may_follow([*chosen, name])
  ordering_first = not chosen and name == "sort_by"  # no chain yet, but a start
  fits = ordering_first or may_follow([*chosen, name])
  return fits and OPERATIONS[name].shape == "rows"


def _sound(graph: Graph) -> bool:
  for split in SPLITS:
    made = (
        build(graph, Setting(f"sound {graph.name} {number}", split)) is not None
        for number in range(_TRIES)
    )
    if sum(made) < _WANTED:
      return False
  return True


def main() -> dict[str, Any]:
  records = extended(json_text.parse(FILE.read_text()))
  lines = ",\n".join(json.dumps(record) for record in records)
  write_atomic(FILE, f"[\n{lines}\n]\n")
  return {"families": len(records), "file": str(FILE)}


if __name__ == "__main__":
  cli.run(main)
