"""The records of a task: what is read, what is done with it, how it is handed over.

`drawn` draws them from a setting; the functions below it make of them the calls
of a solution, whose literals all stand in what `said` and the sink's request say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from clawgym_jax.contracts.task import SolutionCall
from data_gen.compose.graph import Graph
from data_gen.compose.kinds import EVERY, Kind
from data_gen.compose.operations import Chain, Step, chain
from data_gen.compose.part import Part, joined
from data_gen.compose.setting import Setting
from data_gen.compose.sinks import SINKS, Sink
from data_gen.compose.table import Table
from data_gen.compose.topics import Topic
from data_gen.draft import edit_call, exec_call, read_call, write_call

SCRATCH = "/tmp/rows.json"
SECOND = "/tmp/other.json"
SCRIPT = "/tmp/work.py"
_SHOW = "print(len(rows), rows[:2])"
_RUNS = (0, 1, 1, 1, 1, 1, 1, 2, 2, 3)


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


@dataclass(frozen=True)
class Records:
  """One chain of operations from one source, and perhaps a second, to one result.

  Attributes:
    source, other, path: of the source, of the second file ("" where there is
      none; `beside` is its kind) and of the result.
    handed: how the request names the result, after "Save the result".
    ruled: what a house asks besides; its steps are in the chain.
    runs: how often a script that does the work is run as it grows; 0 where each
      step is a program of its own.
  """

  kind: Kind
  beside: Kind | None
  sink: Sink
  chain: Chain
  source: str
  other: str
  path: str
  handed: str
  ruled: Ruled | None = None
  runs: int = 0

  @property
  def steps(self) -> tuple[Step, ...]:
    return self.chain.steps

  @property
  def files(self) -> dict[str, bytes]:
    """The input files."""
    files = self.kind.write(self.chain.source, self.source)
    if self.beside:
      files |= self.beside.write(self.chain.second, self.other)
    return files

  @property
  def described(self) -> str:
    """What a request must say of the sources; empty, or whole sentences."""
    told = [self.kind.said, self.beside.said if self.beside else ""]
    return " ".join(dict.fromkeys(t for t in told if t))

  @property
  def expected(self) -> dict:
    return self.sink.expected(self.path, self.chain.result, self.chain.ordered)

  def said(self, steps: Sequence[Step] | None = None) -> str:
    """What is done, as one clause; `steps` are those of the chain if not given."""
    steps = self.steps if steps is None else steps
    return "; then ".join(step.said for step in steps).replace("{other}", self.other)

  def request(self, said: str | None = None) -> str:
    """The whole request; `said` is what is to be done if it is not `said()`."""
    said = self.said() if said is None else said
    asked = f"From the {self.kind.called} {self.source}: {said}. Save the result"
    return f"{asked} {self.handed}." + (f" {self.described}" if self.described else "")

  def calls(self) -> list[SolutionCall]:
    """The whole work: both sources read, all steps, the result handed over."""
    if self.runs:
      return self.in_a_script()
    return [*self.reading(), *self.working(), *self.handing()]

  def in_a_script(self) -> list[SolutionCall]:
    """The whole work as a script that is written, run, and grows by edits; it leaves
    the rows in the scratch file, too, for what comes after it."""
    sources = [(self.kind, self.source)]
    loads = [self.kind.load.format(path=self.source)]
    if self.beside:
      sources.append((self.beside, self.other))
      loads = [self.beside.load.format(path=self.other), "other = rows", *loads]
    work = "\n".join([*(step.code for step in self.steps), _keep(SCRATCH)])
    writing = self.sink.writing(self.path, self.chain.result)
    stages = {
        1: (f"{work}\n{writing}",),
        2: (_SHOW, f"{work}\n{writing}"),
        3: (_SHOW, f"{work}\n{_SHOW}", writing),
    }[self.runs]
    run = exec_call(f"python3 {SCRIPT}")
    first, *later = stages
    return [
        *(look(kind, path) for kind, path in sources),
        write_call(SCRIPT, "\n".join(["import json", *loads, first]) + "\n"),
        run,
        *(call for code in later for call in (edit_call(SCRIPT, _SHOW, code), run)),
        look_at(self.sink, self.path),
    ]

  def reading(self, *, second: bool = True) -> list[SolutionCall]:
    """Looks at the source and, if `second`, at the second file where there is one."""
    calls = reading(self.kind, self.source)
    if self.beside and second:
      calls += reading(self.beside, self.other, SECOND)
    return calls

  def working(self, first: int = 0, last: int | None = None) -> list[SolutionCall]:
    """The steps from number `first` up to `last`."""
    numbers = range(len(self.steps))[first:last]
    return [
        python_call(self.steps[n].code, second=n == self.chain.joining) for n in numbers
    ]

  def handing(self) -> list[SolutionCall]:
    return handing(self.sink, self.path, self.chain.result)


def drawn(
    graph: Graph, setting: Setting, topic: Topic, house: House | None = None
) -> Records | None:
  """The records of a task, or None where this setting gives nothing sound."""
  kind, sink = EVERY[graph.source], SINKS[graph.sink]
  stem = setting.rng.choice(topic.stems)
  folder = setting.word("folder")
  table = topic.draw(setting, setting.rng.randint(24, 60))
  done = chain(graph.operations, setting, table, kind.order)
  if done is None or not kind.fits(done.source) or not sink.takes(done.result):
    return None
  ruled = house(done, sink) if house else None
  if house and ruled is None:
    return None
  if ruled:
    done = replace(done, steps=(*done.steps, *ruled.steps))
  beside, other = None, ""
  if done.second:
    beside = EVERY[graph.second]
    if done.stem == stem or not beside.fits(done.second):
      return None
    other = f"{folder}/{done.stem}{beside.suffix}"
  path = f"{setting.word('target')}/{setting.word('topic')}{sink.suffix}"
  return Records(
      kind,
      beside,
      sink,
      done,
      source=f"{folder}/{stem}{kind.suffix}",
      other=other,
      path=path,
      handed=sink.request(setting, path, done.result),
      ruled=ruled,
      runs=setting.beside("way of working").rng.choice(_RUNS),
  )


def part_of(records: Records) -> Part:
  """All of the work in one request."""
  part = Part(
      said=records.request(),
      calls=records.calls(),
      workspace=records.files,
      deliverables={"result": records.expected},
      done=f"the result is in {records.path}",
  )
  ruled = records.ruled
  return joined([ruled.reading, ruled.handed(part)]) if ruled else part


def reading(kind: Kind, path: str, scratch: str = SCRATCH) -> list[SolutionCall]:
  """Looks at a source, and keeps its rows in `scratch`."""
  load = kind.load.format(path=path)
  return [look(kind, path), python_call(load, load=False, scratch=scratch)]


def look(kind: Kind, path: str) -> SolutionCall:
  """Shows a source."""
  return exec_call(kind.look.format(path=path)) if kind.look else read_call(path)


def handing(sink: Sink, path: str, table: Table) -> list[SolutionCall]:
  """Writes the rows to `path`, and looks at it."""
  return [
      python_call(sink.writing(path, table), save=False), look_at(sink, path)
  ]


def look_at(sink: Sink, path: str) -> SolutionCall:
  """Shows a result."""
  return exec_call(sink.look.format(path=path)) if sink.look else read_call(path)


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
    lines += [_keep(scratch), _SHOW]
  return exec_call("python3 - <<'EOF'\n" + "\n".join(lines) + "\nEOF")


def _keep(scratch: str) -> str:
  return f'json.dump(rows, open("{scratch}", "w"))'


def look_around() -> SolutionCall:
  """What an agent does first: it sees which files there are."""
  return exec_call("find . -type f | sort")
