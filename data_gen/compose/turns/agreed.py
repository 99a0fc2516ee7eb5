"""Turns that go by what was agreed: a rule, a rule that changes, a way of doing it."""

from __future__ import annotations

from data_gen.compose.part import Later, Part
from data_gen.compose.records import Records, look_around
from data_gen.compose.turns.pattern import (
    Asked, Notebook, before, extensible, notebook, pattern, worded,
)  # fmt: skip
from data_gen.draft import edit_call, read_call


def _asked_by_rule(
    asked: Asked, records: Records, at: int, rule: str, told: str
) -> str:
  """The request in which step `at` is only named."""
  said = asked.phrase(
      f"apply the {rule} that we agreed on ({told})",
      f"do what the {rule} says, which you wrote down {told}",
      f"go by our {rule} here; I told you once, it stands {told}",
  )
  return records.request(records.said(worded(records.steps, at, said)))


def _to_note(asked: Asked, note: Notebook, line: str) -> str:
  """The request for a line at the end of the notebook."""
  return asked.phrase(
      f"We will need this again: write it down at the end of {note.path}, word for"
      f" word.\n{line}",
      f"Remember this for later, as the last line of {note.path} and in these"
      f" words:\n{line}",
      f"Please note the following in {note.path}, below what is there, exactly as it"
      f" stands here:\n{line}",
  )


def _by_rule(asked: Asked, note: Notebook, records: Records, request: str) -> Later:
  """The turn, in a new conversation, that goes by what the notebook says."""
  return Later(
      said=request,
      calls=[look_around(), read_call(note.path), *records.calls()],
      done=f"the result is in {records.path}",
      fresh=True,
  )


def _told(
    asked: Asked,
    note: Notebook,
    records: Records,
    rule: str,
    lines: tuple[str, str],
    later: tuple[Later, ...],
) -> Part:
  """The task: a line of the rule is noted, and what follows leaves the second one."""
  first, last = lines
  return Part(
      said=_to_note(asked, note, first),
      calls=note.noting(first),
      workspace=records.files | note.files,
      deliverables={"result": records.expected, "noted": note.page(last)},
      done=f"the {rule} is noted",
      changed=frozenset({note.path}),
      later=later,
  )


@pattern(extensible, "memory keeping", "memory recall")
def by_the_rule(asked: Asked) -> Part | None:
  """A rule is told and noted; a later conversation has the work that needs it."""
  graph, at = asked.longer()
  records = asked.records(graph)
  if records is None:
    return None
  note = notebook(asked)
  rule = f"{asked.draw.word('project')} rule"
  line = f"- {rule}: {records.steps[at].said}"
  request = _asked_by_rule(asked, records, at, rule, note.told)
  later = (_by_rule(asked, note, records, request),)
  return _told(asked, note, records, rule, (line, line), later)


@pattern(extensible, "memory keeping", "memory recall")
def rule_has_changed(asked: Asked) -> Part | None:
  """A rule is told, then told otherwise; a later conversation goes by the new one."""
  graph, at = asked.longer()
  records = asked.records(graph)
  if records is None:
    return None
  note = notebook(asked)
  step = records.steps[at]
  old = asked.redrawn(graph.operations[at], before(records, at), step)
  if old is None or old.said == step.said:
    return None
  rule = f"{asked.draw.word('project')} rule"
  first, line = f"- {rule}: {old.said}", f"- {rule}: {step.said}"
  request = _asked_by_rule(asked, records, at, rule, note.told)
  change = asked.phrase(
      f"Wait, the {rule} is another one now. Correct its line in {note.path}, and"
      f" nothing else there; it has to read:\n{line}",
      f"They have just changed the {rule}: replace its line in {note.path} by this"
      f" one.\n{line}",
      f"I got the {rule} wrong. In {note.path} its line must be the following, the"
      f" rest stays as it is:\n{line}",
  )
  later = (
      Later(
          said=change,
          calls=[edit_call(note.path, first, line), read_call(note.path)],
          done=f"the {rule} is corrected",
      ),
      _by_rule(asked, note, records, request),
  )
  return _told(asked, note, records, rule, (first, line), later)


@pattern(lambda graph: not graph.second, "memory keeping", "memory recall")
def as_last_time(asked: Asked) -> Part | None:
  """The work is done and its way noted; a later conversation wants it for another
  file."""
  records = asked.records()
  again = records and asked.twin(records)
  if not again:
    return None
  note, way = notebook(asked), f"{asked.draw.word('project')} list"
  line = f"- {way}: {records.said()}; save the result {records.handed}"
  folder = again.path.rpartition("/")[0]
  told = f" {again.described}" if again.described else ""
  request = asked.phrase(
      f"Make the {way} again, this time from {again.source}, in the way that you wrote"
      f" down {note.told}. It goes to the folder {folder}, under the file name that it"
      " always has.",
      f"The {way} once more, please: same as ever (see what you wrote down"
      f" {note.told}), but the records are {again.source} and the file is to lie in"
      f" {folder}, named as the first one.",
      f"There is a new file, {again.source}. Do with it what we do for the {way}; the"
      f" way is {note.told}. Same file name as last time, but in {folder}.",
  )
  return Part(
      said=f"{records.request()}\nThis is our {way}. {_to_note(asked, note, line)}",
      calls=[*records.calls(), *note.noting(line)],
      workspace=records.files | again.files | note.files,
      deliverables={
          "result": records.expected,
          "again": again.expected,
          "noted": note.page(line),
      },
      done=f"the result is in {records.path}, and how it is made is noted",
      changed=frozenset({note.path}),
      later=(_by_rule(asked, note, again, request + told),),
  )
