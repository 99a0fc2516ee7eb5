"""From a graph to a task: calls, request, files and what the checks expect.

`Graph` is the family: which operations in which order, from which kinds of
files to which kinds of deliverables. What it is about (the topic, the people)
is drawn a task at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from clawgym_jax.contracts.task import SolutionCall
from data_gen.compose.chores import CHORES
from data_gen.compose.kinds import KINDS, Kind
from data_gen.compose.operations import OPERATIONS, Step
from data_gen.compose.part import Part, joined
from data_gen.compose.setting import Setting
from data_gen.compose.sinks import SINKS, Sink
from data_gen.compose.surroundings import surroundings
from data_gen.compose.table import Table
from data_gen.compose.topics import TOPICS, Topic
from data_gen.draft import exec_call, read_call

SCRATCH = "/tmp/rows.json"
_MOST_KEPT = 0.7  # of the rows, by a filter: copying the input must be wrong


@dataclass(frozen=True)
class Graph:
  """A family of tasks, by the names of its modules."""

  source: str
  operations: tuple[str, ...]
  sink: str
  chores: tuple[str, ...] = ()

  @property
  def name(self) -> str:
    return "-".join((self.source, *self.operations, self.sink, *self.chores))


def build(graph: Graph, setting: Setting) -> Part | None:
  """The work of a task, or None where this setting draws nothing sound for it."""
  topic = setting.rng.choice(sorted(TOPICS.values(), key=lambda t: t.name))
  records = _records(graph, setting, topic)
  if records is None:
    return None
  chores = [CHORES[name].make(setting) for name in graph.chores]
  if None in chores:
    return None
  work = joined([_explore(), records, *chores])
  return joined([work, surroundings(setting, topic, work)])


def _explore() -> Part:
  return Part("", [exec_call("find . -type f | sort")], {}, {}, "")


def _records(graph: Graph, setting: Setting, topic: Topic) -> Part | None:
  kind, sink = KINDS[graph.source], SINKS[graph.sink]
  stem = setting.rng.choice(topic.stems)
  source = f"{setting.word('folder')}/{stem}{kind.suffix}"
  table = topic.draw(setting, setting.rng.randint(24, 60))
  if not kind.fits(table):
    return None
  table = kind.order(table)
  steps = _apply(graph, setting, table)
  if steps is None or not sink.fits(steps[-1].table):
    return None
  result = steps[-1].table
  path = f"{setting.word('target')}/{setting.word('topic')}{sink.suffix}"
  said = "; then ".join(step.said for step in steps)
  columns = ", ".join(result.names)
  first, second = [*result.names, ""][:2]
  handed = sink.said.format(path=path, columns=columns, first=first, second=second)
  ordered = any(step.ordered for step in steps)
  return Part(
      said=f"From the {kind.called} {source}: {said}. Save the result {handed}.",
      calls=_calls(kind, source, steps, sink, path),
      workspace=kind.write(table, source),
      deliverables={"result": sink.expected(path, result, ordered)},
      done=f"the result is in {path}",
  )


def _apply(graph: Graph, setting: Setting, table: Table) -> list[Step] | None:
  steps = []
  for name in graph.operations:
    step = OPERATIONS[name].apply(setting, table)
    if step is None or not step.table.rows:
      return None
    same_columns = step.table.names == table.names
    if same_columns and len(step.table.rows) > _MOST_KEPT * len(table.rows):
      return None
    steps.append(step)
    table = step.table
  return steps


def _calls(
    kind: Kind, source: str, steps: list[Step], sink: Sink, path: str
) -> list[SolutionCall]:
  result = steps[-1].table
  first, second = [*result.names, ""][:2]
  write = sink.code.format(
      path=path, folder=path.rpartition("/")[0], names=result.names,
      first=first, second=second,
  )  # fmt: skip
  look = exec_call(kind.look.format(path=source)) if kind.look else read_call(source)
  return [
      look,
      python_call(kind.load.format(path=source), load=False),
      *(python_call(step.code) for step in steps),
      python_call(write, save=False),
      read_call(path),
  ]


def python_call(code: str, *, load: bool = True, save: bool = True) -> SolutionCall:
  """Runs `code` on `rows`, which stay in a scratch file between calls."""
  lines = ["import json"]
  if load:
    lines.append(f'rows = json.load(open("{SCRATCH}"))')
  lines.append(code)
  if save:
    lines.append(f'json.dump(rows, open("{SCRATCH}", "w"))')
    lines.append("print(len(rows), rows[:2])")
  return exec_call("python3 - <<'EOF'\n" + "\n".join(lines) + "\nEOF")
