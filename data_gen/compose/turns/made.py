"""Turns that go on with what was made: a list, what was left open, a first version."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from clawgym_jax.contracts.task import SolutionCall
from data_gen.compose.chores.registry import lines, text
from data_gen.compose.graph import Graph
from data_gen.compose.kinds import KINDS
from data_gen.compose.operations import OPERATIONS
from data_gen.compose.part import Later, Part
from data_gen.compose.records import (
    SCRATCH, SECOND, Records, handing, look_around, python_call, reading,
)  # fmt: skip
from data_gen.compose.sinks import SINKS, Sink
from data_gen.compose.table import Table
from data_gen.compose.turns.pattern import (
    Asked, before, extensible, notebook, pattern,
)  # fmt: skip
from data_gen.draft import exec_call, read_call

# Sinks of a list that is worked on later -> the Python that gets its rows.
_LOADS = {
    "csv": KINDS["csv"].load,
    "tsv": KINDS["tsv"].load,
    "json": 'rows = json.load(open("{path}", encoding="utf-8"))',
    "jsonl": KINDS["jsonl"].load,
}
_FRESH = 0.7  # of the tasks in which a list is worked on


@dataclass(frozen=True)
class _Cut:
  """A chain in two: what the first `at` steps give is a list, kept in `path` by a
  sink of its own; `saved` is how the request says so."""

  records: Records
  at: int
  sink: Sink
  path: str
  saved: str

  @property
  def table(self) -> Table:
    return self.records.steps[self.at - 1].table

  @property
  def early(self) -> bool:
    """Whether the second file, if there is one, is needed for the list."""
    return self.records.chain.joining < self.at

  @property
  def first(self) -> str:
    """The request for the list."""
    records = self.records
    said = records.said(records.steps[: self.at])
    told = records.described if self.early else records.kind.said
    asked = f"From the {records.kind.called} {records.source}: {said}. Save that"
    return f"{asked} {self.saved}." + (f" {told}" if told else "")

  @property
  def rest(self) -> str:
    """What is done with the list, and how it is handed over, as a clause."""
    records = self.records
    said = records.said(records.steps[self.at :])
    return f"{said}; save the result {records.handed}"

  @property
  def told(self) -> str:
    """What must be said with the rest, after a blank; or nothing."""
    beside = self.records.beside
    return f" {beside.said}" if beside and beside.said and not self.early else ""

  def first_calls(self) -> list[SolutionCall]:
    return [
        *self.records.reading(second=self.early),
        *self.records.working(0, self.at),
        *handing(self.sink, self.path, self.table),
    ]

  def later_calls(self) -> list[SolutionCall]:
    records = self.records
    load = _LOADS[self.sink.name].format(path=self.path)
    other = [] if self.early else reading(records.beside, records.other, SECOND)
    return [
        read_call(self.path),
        python_call(load, load=False),
        *other,
        *records.working(self.at),
        *records.handing(),
    ]

  def expected(self) -> dict[str, Any]:
    ordered = any(step.ordered for step in self.records.steps[: self.at])
    return self.sink.expected(self.path, self.table, ordered)


def _cuttable(graph: Graph) -> bool:
  return len(graph.operations) > 1 or extensible(graph)


def _cut(asked: Asked) -> _Cut | None:
  """The chain in two; one of a single step is made longer first."""
  graph, draw = asked.graph, asked.draw
  if len(graph.operations) == 1:
    graph, _ = asked.longer()
  records = asked.records(graph)
  if records is None:
    return None
  at = draw.rng.randint(1, len(records.steps) - 1)
  sink = SINKS[draw.rng.choice(sorted(_LOADS))]
  path = f"interim/{draw.word('topic')}{sink.suffix}"
  saved = sink.request(draw, path, records.steps[at - 1].table)
  return _Cut(records, at, sink, path, saved)


@pattern(_cuttable)
def list_you_made(asked: Asked) -> Part | None:
  """A list is made; a later turn, mostly in a new conversation, goes on with it."""
  cut = _cut(asked)
  if cut is None:
    return None
  return _found_again(asked, cut) if asked.draw.coin(_FRESH) else _gone_on(asked, cut)


def _gone_on(asked: Asked, cut: _Cut) -> Part:
  request = asked.phrase(
      f"Good. Now take the list that you have just made: {cut.rest}.{cut.told}",
      f"Thanks, and with that list please go on: {cut.rest}.{cut.told}",
      f"That was the first half. Next, from what you have just saved: {cut.rest}."
      f"{cut.told}",
  )
  return Part(
      said=cut.first,
      calls=cut.first_calls(),
      workspace=cut.records.files,
      deliverables={"result": cut.records.expected, "list": cut.expected()},
      done=f"the list is {cut.path}",
      later=(
          Later(request, cut.later_calls(), f"the result is in {cut.records.path}"),
      ),
  )


def _found_again(asked: Asked, cut: _Cut) -> Part:
  """Where the list is, is noted."""
  note, title = notebook(asked), f"{asked.draw.word('project')} list"
  line = f"- {title}: {cut.path}"
  noted = asked.phrase(
      f"Note where you put it, so that we find it again: as the last line of"
      f" {note.path}, exactly so.\n{line}",
      f"And write down at the end of {note.path} where it is, in these words:\n{line}",
      f"We will come back to it, so add this line to the end of {note.path}:\n{line}",
  )
  request = asked.phrase(
      f"Take the {title} that you made for me (you wrote down {note.told} where it is):"
      f" {cut.rest}.{cut.told}",
      f"You made the {title} for me some time ago; where it lies is written"
      f" {note.told}. From it: {cut.rest}.{cut.told}",
      f"I need more of the {title} (see what you wrote {note.told}):"
      f" {cut.rest}.{cut.told}",
  )
  return Part(
      said=f"{cut.first}\n{noted}",
      calls=[*cut.first_calls(), *note.noting(line)],
      workspace=cut.records.files | note.files,
      deliverables={
          "result": cut.records.expected,
          "list": cut.expected(),
          "noted": note.page(line),
      },
      done=f"the list is {cut.path}, which is noted",
      changed=frozenset({note.path}),
      later=(
          Later(
              said=request,
              calls=[look_around(), read_call(note.path), *cut.later_calls()],
              done=f"the result is in {cut.records.path}",
              fresh=True,
          ),
      ),
  )


@pattern(_cuttable, "memory keeping", "memory recall")
def left_open(asked: Asked) -> Part | None:
  """Half of the work is done and the rest written down as open; a later conversation
  goes on from there."""
  cut = _cut(asked)
  if cut is None:
    return None
  draw, records = asked.draw, cut.records
  title, path = draw.word("project"), f"open/{draw.word('item')}.md"
  page = ["# Open", "", f"- [x] {draw.word('chore')}", f"- [x] {draw.word('chore')}"]
  rest = f"{title}: from {cut.path}: {cut.rest}"
  open_line = f"- [ ] {rest}"
  noted = asked.phrase(
      f"That is enough for today. Put what is left to do at the end of {path}, word for"
      f" word:\n{open_line}",
      f"The rest has to wait. Write it down as the last line of {path}, exactly so:"
      f"\n{open_line}",
      f"Stop there for now, and add this line to the end of {path}:\n{open_line}",
  )
  request = asked.phrase(
      f"Go on with what is open in {path} for {title}, and tick it off there ([x] for"
      f" [ ]).{cut.told}",
      f"Something of {title} is still to be done, see {path}. Do it now and put [x] in"
      f" its line.{cut.told}",
      f"We had to stop with {title}: finish what {path} has as open, then mark it [x]"
      f" there.{cut.told}",
  )
  tick = exec_call(f"sed -i 's/^- \\[ \\] {title}: /- [x] {title}: /' {path}")
  return Part(
      said=f"{cut.first}\n{noted}",
      calls=[
          *cut.first_calls(),
          read_call(path),
          exec_call(f"cat >> {path} <<'EOF'\n{open_line}\nEOF"),
      ],
      workspace=records.files | {path: text(page)},
      deliverables={
          "result": records.expected,
          "list": cut.expected(),
          "ticked": lines(path, [*page, f"- [x] {rest}"]),
      },
      done=f"the list is {cut.path}, and the rest is in {path}",
      changed=frozenset({path}),
      later=(
          Later(
              said=request,
              calls=[
                  look_around(),
                  read_call(path),
                  *cut.later_calls(),
                  tick,
                  read_call(path),
              ],
              done=f"the result is in {records.path}",
              fresh=True,
          ),
      ),
  )


def _ends_on_one_file(graph: Graph) -> bool:
  return not OPERATIONS[graph.operations[-1]].second


@pattern(_ends_on_one_file)
def meant_otherwise(asked: Asked) -> Part | None:
  """The last step was meant otherwise: it is done again, and the first result kept."""
  records = asked.records()
  if records is None:
    return None
  last = len(records.steps) - 1
  name = asked.graph.operations[last]
  step = asked.redrawn(name, before(records, last), records.steps[last])
  if step is None or not records.sink.takes(step.table):
    return None
  if step.table.cells() == records.chain.result.cells():
    return None
  kept = f"first/{records.path.rpartition('/')[2]}"
  meant = replace(records, chain=replace(
      records.chain, steps=(*records.steps[:last], step)
  ))  # fmt: skip
  handed = records.sink.request(asked.draw, records.path, step.table)
  old = records.steps[last].said
  request = asked.phrase(
      f"Sorry, my mistake. I said \"{old}\", but I meant \"{step.said}\". Move what you"
      f" have to {kept}, so that I can compare, do it all again and save the right"
      f" result {handed}.",
      f"That is not quite it: instead of \"{old}\" it should have been"
      f" \"{step.said}\". Keep the first version as {kept} (move it there) and save the"
      f" new one {handed}.",
      f"I mixed something up, read \"{step.said}\" where I wrote \"{old}\". Please redo"
      f" it: the file so far goes to {kept}, the new result {handed}.",
  )
  folder = kept.partition("/")[0]
  return Part(
      said=records.request(),
      calls=records.calls(),
      workspace=records.files,
      deliverables={
          "result": meant.expected,
          "first": records.sink.expected(
              kept, records.chain.result, records.chain.ordered
          ),
      },
      done=f"the result is in {records.path}",
      later=(
          Later(
              said=request,
              calls=[
                  exec_call(f"mkdir -p {folder} && mv {records.path} {kept}"),
                  *meant.calls(),
              ],
              done=f"{records.path} is as it was meant, the first version is {kept}",
          ),
      ),
  )


def _ends_in_rows(graph: Graph) -> bool:
  return not graph.second and OPERATIONS[graph.operations[-1]].shape == "rows"


@pattern(_ends_in_rows, "concatenation")
def and_these_too(asked: Asked) -> Part | None:
  """A result is made; then the rows of another file belong to it as well."""
  records = asked.records()
  again = records and asked.twin(records)
  if not again:
    return None
  rows = (*records.chain.result.rows, *again.chain.result.rows)
  both = records.chain.result.with_rows(rows)
  if not records.sink.takes(both):
    return None
  told = f" {records.described}" if records.described else ""
  request = asked.phrase(
      f"I forgot one file: {again.source} belongs to it. Treat it the same way and add"
      f" its rows to {records.path}, below those that are there.{told}",
      f"And {again.source}, please, by the same steps: its rows go into {records.path}"
      f" as well, after the others.{told}",
      f"There is also {again.source}. Do the same with it, and let {records.path} have"
      f" the rows of both, first those it has, then these.{told}",
  )
  return Part(
      said=records.request(),
      calls=records.calls(),
      workspace=records.files | again.files,
      deliverables={"result": records.sink.expected(records.path, both, True)},
      done=f"the result is in {records.path}",
      later=(
          Later(
              said=request,
              calls=[
                  *again.reading(),
                  *again.working(),
                  exec_call(f"cp {SCRATCH} {SECOND}"),
                  *records.reading(),
                  *records.working(),
                  python_call("rows = rows + other", second=True),
                  exec_call(f"rm {records.path}"),
                  *handing(records.sink, records.path, both),
              ],
              done=f"{records.path} has the rows of both files",
          ),
      ),
  )
