"""From a graph to a task: calls, request, files and what the checks expect.

`Graph` is the family: which operations in which order, from which kinds of
files to which kinds of deliverables. What it is about (the topic, the people)
is drawn a task at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from clawgym_jax.contracts.task import SolutionCall
from data_gen.compose.chores import CHORES
from data_gen.compose.kinds import KINDS, MESSY, Kind
from data_gen.compose.operations import Chain, Step, chain, needs_second
from data_gen.compose.part import Part, joined
from data_gen.compose.setting import Setting
from data_gen.compose.sinks import SINKS, Sink
from data_gen.compose.surroundings import surroundings
from data_gen.compose.topics import Topic, topic_of
from data_gen.draft import exec_call, read_call

SCRATCH = "/tmp/rows.json"
SECOND = "/tmp/other.json"
_KINDS = {**KINDS, **MESSY}


@dataclass(frozen=True)
class Graph:
  """A family of tasks, by the names of its modules.

  `second` is the kind of the second file, "" where no operation needs one.
  """

  source: str
  operations: tuple[str, ...]
  sink: str
  chores: tuple[str, ...] = ()
  second: str = ""

  def __post_init__(self) -> None:
    if bool(self.second) != needs_second(self.operations):
      raise ValueError(f"{self.name}: a second file goes with an operation for it")

  @property
  def name(self) -> str:
    sources = (self.source, self.second) if self.second else (self.source,)
    return "-".join((*sources, *self.operations, self.sink, *self.chores))


@dataclass(frozen=True)
class Ruled:
  """What a workspace asks of a result besides the request (see `skills`).

  Attributes:
    reading: the part that finds it out, before the work.
    steps: what it does to the rows before they are written.
    handed: what it makes of the part of the records, whose deliverable `result`
      is the file handed over.
  """

  reading: Part
  steps: tuple[Step, ...]
  handed: Callable[[Part], Part]


House = Callable[[Chain, Sink], Ruled | None]


def build(graph: Graph, setting: Setting, house: House | None = None) -> Part | None:
  """The work of a task, or None where this setting draws nothing sound for it."""
  topic = topic_of(setting)
  records = _records(graph, setting, topic, house)
  if records is None:
    return None
  chores = [CHORES[name].make(setting) for name in graph.chores]
  if None in chores:
    return None
  work = joined([_explore(), records, *chores])
  return joined([work, surroundings(setting, topic, work)])


def _explore() -> Part:
  return Part("", [exec_call("find . -type f | sort")], {}, {}, "")


def _records(
    graph: Graph, setting: Setting, topic: Topic, house: House | None
) -> Part | None:
  kind, sink = _KINDS[graph.source], SINKS[graph.sink]
  stem = setting.rng.choice(topic.stems)
  folder = setting.word("folder")
  source = f"{folder}/{stem}{kind.suffix}"
  table = topic.draw(setting, setting.rng.randint(24, 60))
  done = chain(graph.operations, setting, table, kind.order)
  if done is None or not kind.fits(done.source) or not sink.takes(done.result):
    return None
  ruled = house(done, sink) if house else None
  if house and ruled is None:
    return None
  if ruled:
    done = replace(done, steps=(*done.steps, *ruled.steps))
  files, reading = kind.write(done.source, source), _reading(kind, source, SCRATCH)
  described, other = kind.said, ""
  if done.second:
    beside = _KINDS[graph.second]
    if done.stem == stem or not beside.fits(done.second):
      return None
    other = f"{folder}/{done.stem}{beside.suffix}"
    files |= beside.write(done.second, other)
    reading += _reading(beside, other, SECOND)
    if beside.said not in described:
      described = f"{described} {beside.said}".strip()
  path = f"{setting.word('target')}/{setting.word('topic')}{sink.suffix}"
  said = "; then ".join(step.said for step in done.steps).replace("{other}", other)
  handed = sink.request(setting, path, done.result)
  records = Part(
      said=f"From the {kind.called} {source}: {said}. Save the result {handed}."
      + (f" {described}" if described else ""),
      calls=[*reading, *_calls(done, sink, path)],
      workspace=files,
      deliverables={"result": sink.expected(path, done.result, done.ordered)},
      done=f"the result is in {path}",
  )
  return joined([ruled.reading, ruled.handed(records)]) if ruled else records


def _reading(kind: Kind, path: str, scratch: str) -> list[SolutionCall]:
  """Looks at a source, and keeps its rows in `scratch`."""
  look = exec_call(kind.look.format(path=path)) if kind.look else read_call(path)
  load = kind.load.format(path=path)
  return [look, python_call(load, load=False, scratch=scratch)]


def _calls(done: Chain, sink: Sink, path: str) -> list[SolutionCall]:
  return [
      *(
          python_call(step.code, second=number == done.joining)
          for number, step in enumerate(done.steps)
      ),
      python_call(sink.writing(path, done.result), save=False),
      exec_call(sink.look.format(path=path)) if sink.look else read_call(path),
  ]


def python_call(
    code: str,
    *,
    load: bool = True,
    save: bool = True,
    second: bool = False,
    scratch: str = SCRATCH,
) -> SolutionCall:
  """Runs `code` on `rows`, which stay in a scratch file between calls; `second`
  gives it the rows of the second file as `other`."""
  lines = ["import json"]
  if load:
    lines.append(f'rows = json.load(open("{scratch}"))')
  if second:
    lines.append(f'other = json.load(open("{SECOND}"))')
  lines.append(code)
  if save:
    lines.append(f'json.dump(rows, open("{scratch}", "w"))')
    lines.append("print(len(rows), rows[:2])")
  return exec_call("python3 - <<'EOF'\n" + "\n".join(lines) + "\nEOF")
