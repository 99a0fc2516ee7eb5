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
from data_gen.draft import edit_call, exec_call, read_call, write_call

SCRATCH = "/tmp/rows.json"
SECOND = "/tmp/other.json"
SCRIPT = "/tmp/work.py"
_SHOW = "print(len(rows), rows[:2])"
_WAYS = ("steps", "script", "script", "script", "rewritten script")
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
  files, sources = kind.write(done.source, source), [(kind, source)]
  described, other = kind.said, ""
  if done.second:
    beside = _KINDS[graph.second]
    if done.stem == stem or not beside.fits(done.second):
      return None
    other = f"{folder}/{done.stem}{beside.suffix}"
    files |= beside.write(done.second, other)
    sources.append((beside, other))
    if beside.said not in described:
      described = f"{described} {beside.said}".strip()
  path = f"{setting.word('target')}/{setting.word('topic')}{sink.suffix}"
  said = "; then ".join(step.said for step in done.steps).replace("{other}", other)
  handed = sink.request(setting, path, done.result)
  records = Part(
      said=f"From the {kind.called} {source}: {said}. Save the result {handed}."
      + (f" {described}" if described else ""),
      calls=_working(setting, done, sources, sink.writing(path, done.result))
      + [exec_call(sink.look.format(path=path)) if sink.look else read_call(path)],
      workspace=files,
      deliverables={"result": sink.expected(path, done.result, done.ordered)},
      done=f"the result is in {path}",
  )
  return joined([ruled.reading, ruled.handed(records)]) if ruled else records


def _working(
    setting: Setting, done: Chain, sources: list[tuple[Kind, str]], writing: str
) -> list[SolutionCall]:
  """The calls from the sources to the file, in one of the ways that people work."""
  way = setting.beside("way of working").rng.choice(_WAYS)
  if way == "steps":
    return _in_steps(done, sources, writing)
  return _in_a_script(done, sources, writing, runs=3 if "rewritten" in way else 2)


def _in_steps(
    done: Chain, sources: list[tuple[Kind, str]], writing: str
) -> list[SolutionCall]:
  """One program a step; the rows stay in a scratch file between them."""
  calls = []
  for (kind, path), scratch in zip(sources, (SCRATCH, SECOND)):
    load = kind.load.format(path=path)
    calls += [_look(kind, path), python_call(load, load=False, scratch=scratch)]
  for number, step in enumerate(done.steps):
    calls.append(python_call(step.code, second=number == done.joining))
  return [*calls, python_call(writing, save=False)]


def _in_a_script(
    done: Chain, sources: list[tuple[Kind, str]], writing: str, runs: int
) -> list[SolutionCall]:
  """A script that first only reads, and then grows by edits; each is run. It leaves
  the rows in the scratch file, too, for what comes after it."""
  loads = [kind.load.format(path=path) for kind, path in sources]
  if len(loads) == 2:
    loads = [loads[1], "other = rows", loads[0]]
  run = exec_call(f"python3 {SCRIPT}")
  work = "\n".join([*(step.code for step in done.steps), _keep(SCRATCH)])
  parts = [f"{work}\n{_SHOW}", writing] if runs == 3 else [f"{work}\n{writing}"]
  return [
      *(_look(kind, path) for kind, path in sources),
      write_call(SCRIPT, "\n".join(["import json", *loads, _SHOW]) + "\n"),
      run,
      *(call for code in parts for call in (edit_call(SCRIPT, _SHOW, code), run)),
  ]


def _keep(scratch: str) -> str:
  return f'json.dump(rows, open("{scratch}", "w"))'


def _look(kind: Kind, path: str) -> SolutionCall:
  return exec_call(kind.look.format(path=path)) if kind.look else read_call(path)


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
    lines.append(_keep(scratch))
    lines.append(_SHOW)
  return exec_call("python3 - <<'EOF'\n" + "\n".join(lines) + "\nEOF")
