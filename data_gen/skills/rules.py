"""House rules: what a workspace asks of its results, told by a skill alone.

A rule is drawn from the frame. Its `text` goes into a SKILL.md and holds every
literal; the request says only that there is a rule, what it is for and where
it stands. Some rules change rows before they are written, with a typed result
like any operation; the others do something with the finished file.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from pathlib import PurePosixPath
from typing import Any

from data_gen.compose.operations import Step
from data_gen.compose.operations.registry import extended, phrase
from data_gen.compose.part import Part
from data_gen.compose.records import python_call
from data_gen.compose.setting import Setting
from data_gen.compose.sinks import Sink
from data_gen.compose.table import Column, Table
from data_gen.draft import exec_call

_CASES = {
    "upper": ("in capitals throughout", str.upper),
    "lower": ("in small letters throughout", str.lower),
    "capitalize": ("with a capital first letter and the rest small", str.capitalize),
}  # fmt: skip


@dataclass(frozen=True)
class Rule:
  """One rule as drawn; it has a `step` or a `handed`.

  Attributes:
    text: the rule, one or more sentences.
    step: what it does to the rows.
    handed: from the part of the records to the part with the rule kept.
  """

  text: str
  step: Step | None = None
  handed: Callable[[Part], Part] | None = None


@dataclass(frozen=True)
class RuleKind:
  """A registered rule; rules of one `group` would contradict each other.

  `make` is given draws, the table, its sink and where the rule is found, as a
  phrase ("in the skill x"); None where the table has nothing for it.
  """

  name: str
  group: str
  make: Callable[[Setting, Table, Sink, str], Rule | None]


RULES: dict[str, RuleKind] = {}


def _rule(group: str) -> Callable:
  def register(make: Callable[[Setting, Table, Sink, str], Rule | None]) -> Callable:
    RULES[make.__name__] = RuleKind(make.__name__, group, make)
    return make

  return register


# Rules on rows


def _shown(table: Table, sink: Sink, *types: str) -> list[str]:
  """The columns of these types that the sink hands over."""
  view = sink.view(table).names
  return [name for name in table.of_type(*types) if name in view]


def _each(names: Sequence[str], expression: str, before: str = "") -> str:
  """Code that sets the columns to `expression` of their value `v`."""
  return (
      f"{before}for r in rows:\n"
      f"  for name in {list(names)}:\n"
      "    v = r[name]\n"
      f"    r[name] = {expression}"
  )


def _stepped(
    table: Table,
    sink: Sink,
    names: Sequence[str],
    type_: str,
    change: Callable[[Any], Any],
    said: str,
    code: str,
) -> Step | None:
  """The step that changes the values of these columns; None where they are not
  what they should be, or the sink would not take the result."""
  at = {table.index(name) for name in names}
  if not at or any(row[i] in (None, "") for row in table.rows for i in at):
    return None
  columns = tuple(
      replace(c, type=type_, words=(), form="") if i in at else c
      for i, c in enumerate(table.columns)
  )
  rows = tuple(
      tuple(change(v) if i in at else v for i, v in enumerate(row))
      for row in table.rows
  )
  done = Table(columns, rows)
  same = sink.takes(done) and sink.view(done).names == sink.view(table).names
  return Step(said, code, done) if same and rows != table.rows else None


def _amounts(draw: Setting, names: Sequence[str], where: str) -> str:
  return phrase(
      draw,
      f"write {_list(names)} by the rule for figures {where}",
      f"put {_list(names)} into the form for figures {where}",
      f"treat {_list(names)} as the rule for figures {where} wants it",
  )


def _list(names: Sequence[str]) -> str:
  return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _with_step(text: str, step: Step | None) -> Rule | None:
  return Rule(text, step) if step else None


@_rule("figures")
def decimals(draw: Setting, table: Table, sink: Sink, where: str) -> Rule | None:
  names, places = _shown(table, sink, "money"), draw.rng.choice((0, 1))
  said = _amounts(draw, names, where) if names else ""
  unit = Decimal(1).scaleb(-places)
  shown = Decimal("47.86").quantize(unit, ROUND_HALF_UP)
  text = (
      f"Figures with decimals are handed over with {places} decimal"
      f"{'' if places == 1 else 's'}, halves rounded away from zero: 47.86 is written"
      f" {shown}."
  )
  code = _each(
      names,
      f"str(Decimal(v).quantize(Decimal(1).scaleb(-{places}), ROUND_HALF_UP))",
      "from decimal import Decimal, ROUND_HALF_UP\n",
  )
  change = lambda v: Decimal(v).quantize(unit, ROUND_HALF_UP)
  return _with_step(
      text, _stepped(table, sink, names, "money", change, said, code)
  )


@_rule("figures")
def hundredths(draw: Setting, table: Table, sink: Sink, where: str) -> Rule | None:
  names = _shown(table, sink, "money")
  said = _amounts(draw, names, where) if names else ""
  text = phrase(
      draw,
      "Figures with two decimals are handed over as whole hundredths, without a"
      " point: 47.86 is written 4786.",
      "No figure leaves with a decimal point: it is given in hundredths, so 47.86"
      " becomes 4786.",
  )
  code = _each(names, "str(int(Decimal(v) * 100))", "from decimal import Decimal\n")
  change = lambda v: int(Decimal(v) * 100)
  return _with_step(
      text, _stepped(table, sink, names, "integer", change, said, code)
  )


@_rule("figures")
def unit(draw: Setting, table: Table, sink: Sink, where: str) -> Rule | None:
  names, mark = _shown(table, sink, "money"), draw.word("currency_mark")
  said = _amounts(draw, names, where) if names else ""
  text = phrase(
      draw,
      f"Figures with decimals carry the unit in front, with a blank: {mark} 47.86.",
      f"Before every figure with decimals stands {mark} and one blank, as in"
      f" `{mark} 47.86`.",
  )
  change = lambda v: f"{mark} {v:.2f}"
  code = _each(names, f'"{mark} " + v')
  return _with_step(text, _stepped(table, sink, names, "text", change, said, code))


@_rule("dates")
def date_form(draw: Setting, table: Table, sink: Sink, where: str) -> Rule | None:
  names = _shown(table, sink, "date")
  form = draw.word("date_form")
  example = datetime.date(2026, 3, 25).strftime(form)
  said = names and phrase(
      draw,
      f"write {_list(names)} by the rule for dates {where}",
      f"put {_list(names)} into the form for dates {where}",
      f"give {_list(names)} in the way that the rule for dates {where} wants",
  )
  text = (
      f"Dates are handed over in the form `{form}` (of strftime): 25 March 2026 is"
      f" {example}."
  )
  code = _each(
      names,
      f'datetime.date.fromisoformat(v).strftime("{form}")',
      "import datetime\n",
  )
  change = lambda v: v.strftime(form)
  return _with_step(text, _stepped(table, sink, names, "text", change, said, code))


@_rule("words")
def letter_case(draw: Setting, table: Table, sink: Sink, where: str) -> Rule | None:
  names = [n for n in _shown(table, sink, "category") if table.named(n).words]
  words = [w for n in names for w in table.named(n).words]
  changed = lambda case: sum(_CASES[case][1](w) != w for w in words)
  fitting = [case for case in _CASES if 2 * changed(case) > len(words)]
  case = draw.rng.choice(fitting or list(_CASES))
  said_of, change = _CASES[case]
  said = names and phrase(
      draw,
      f"write {_list(names)} by the rule for letters {where}",
      f"give {_list(names)} the letters that the rule {where} wants",
      f"bring {_list(names)} to the letter case {where}",
  )
  text = f"Words of a fixed list (kinds, places, states) are written {said_of}."
  step = _stepped(
      table, sink, names, "category", change, said, _each(names, f"v.{case}()")
  )
  return _with_step(text, step)


@_rule("identifiers")
def identifier_form(
    draw: Setting, table: Table, sink: Sink, where: str
) -> Rule | None:
  names = _shown(table, sink, "id")
  prefix = draw.word("project")[:4].upper()
  said = names and phrase(
      draw,
      f"write {_list(names)} by the rule for identifiers {where}",
      f"give {_list(names)} the form of identifiers {where}",
      f"change {_list(names)} as the rule for identifiers {where} wants it",
  )
  text = f"An identifier that leaves the house starts with `{prefix}.`, then as it was."
  code = _each(names, f'"{prefix}." + v')
  change = lambda v: f"{prefix}.{v}"
  return _with_step(text, _stepped(table, sink, names, "id", change, said, code))


@_rule("mark")
def mark_column(draw: Setting, table: Table, sink: Sink, where: str) -> Rule | None:
  name = draw.word("mark_column")
  value = f"{draw.word('project')}-{draw.number(10, 99)}"
  done = extended(table, Column(name, "text"), [value] * len(table.rows))
  if done is None or sink.view(table).names != table.names or not sink.takes(done):
    return None
  if sink.view(done).names != done.names:
    return None
  said = phrase(
      draw,
      f"add a last column {name} and fill it by the rule {where}",
      f"give every row a last column {name} with what the rule {where} says",
      f"append the column {name}, the same in each row, as the rule {where} has it",
  )
  text = f"The column {name} of a result holds `{value}` in every row."
  code = f'for r in rows:\n  r["{name}"] = "{value}"'
  return Rule(text, Step(said, code, done))


# Rules on the finished file; in this order


@_rule("file name")
def file_name(draw: Setting, table: Table, sink: Sink, where: str) -> Rule | None:
  if any("{stem}" in said for said in sink.said):  # what is in it names the file
    return None
  word, number = draw.word("project").lower(), str(draw.number(10, 99))
  form = draw.rng.choice(("{w}-{s}-{n}", "{s}_{w}_{n}", "{n}-{w}-{s}", "{w}{n}_{s}"))
  text = (
      f"A finished file is called `{form.format(w=word, s='NAME', n=number)}` and its"
      " old suffix, where NAME is the name that was asked for."
  )
  said = phrase(
      draw,
      f"Then give the file its final name by the rule for file names {where}.",
      f"When it is complete, rename it in its folder as the rule for names {where}"
      " wants.",
      f"Its name is not final: rename the file by the rule {where}.",
  )

  def handed(part: Part) -> Part:
    result = part.deliverables["result"]
    old = PurePosixPath(result["path"])
    stem, dot, suffix = old.name.partition(".")
    new = str(old.with_name(form.format(w=word, s=stem, n=number) + dot + suffix))
    call = exec_call(f"mv {old} {new} && ls {old.parent}")
    return replace(
        part,
        said=f"{part.said} {said}",
        calls=[*part.calls, call],
        deliverables=part.deliverables | {"result": {**result, "path": new}},
        done=f"the result is in {new}",
    )

  return Rule(text, handed=handed)


def _more(part: Part, said: str, calls: list, name: str, spec: dict[str, Any]) -> Part:
  return replace(
      part,
      said=f"{part.said} {said}",
      calls=[*part.calls, *calls],
      deliverables=part.deliverables | {name: spec},
  )


@_rule("second copy")
def second_copy(draw: Setting, table: Table, sink: Sink, where: str) -> Rule | None:
  folder = f"kept/{draw.word('topic')}-{draw.number(10, 99)}"
  text = phrase(
      draw,
      f"Every result is kept twice: the second copy goes to `{folder}/`, under the"
      " same name.",
      f"A copy of each finished file, under its own name, is put into `{folder}/`.",
  )
  said = phrase(
      draw,
      f"Keep a second copy by the rule for copies {where}.",
      f"A copy of the file belongs where the rule for copies {where} says.",
      f"Put a copy aside as well, as the rule {where} asks.",
  )

  def handed(part: Part) -> Part:
    result = part.deliverables["result"]
    path = result["path"]
    copy = f"{folder}/{PurePosixPath(path).name}"
    call = exec_call(f"mkdir -p {folder} && cp {path} {folder}/ && ls {folder}")
    return _more(part, said, [call], "skill_copy", {**result, "path": copy})

  return Rule(text, handed=handed)


@_rule("slip")
def slip(draw: Setting, table: Table, sink: Sink, where: str) -> Rule | None:
  suffix = draw.word("slip_suffix")
  sign = f"Released by {draw.person()}, {draw.word('project')} {draw.number(100, 999)}"
  text = (
      "Beside each finished file, not beside copies of it, lies a slip: the same name"
      f" with `.{suffix}` added at the end. It has three lines: `File: ` and the"
      " file's path in the workspace; `Records: ` and how many records the file"
      " holds, a header not counted;"
      f" `{sign}`."
  )
  said = phrase(
      draw,
      f"Beside it belongs the slip that the rule {where} describes.",
      f"Write the slip for it, too, by the rule {where}.",
      f"Add the slip that goes with a finished file, see the rule {where}.",
  )

  def handed(part: Part) -> Part:
    result = part.deliverables["result"]
    path = result["path"]
    lines = [f"File: {path}", f"Records: {len(result['rows'])}", sign]
    code = (
        f'with open("{path}.{suffix}", "w") as file:\n'
        f'  print("File: {path}", file=file)\n'
        '  print("Records:", len(rows), file=file)\n'
        f'  print("{sign}", file=file)'
    )
    calls = [python_call(code, save=False), exec_call(f"cat {path}.{suffix}")]
    spec = {"kind": "lines", "path": f"{path}.{suffix}", "lines": lines}
    return _more(part, said, calls, "skill_slip", spec)

  return Rule(text, handed=handed)


@_rule("register")
def register(draw: Setting, table: Table, sink: Sink, where: str) -> Rule | None:
  path = f"register/{draw.word('topic')}.md"
  code = f"{draw.word('project')[:3].upper()}-{draw.number(100, 999)}"
  earlier = [
      f"- {draw.word('target')}/{draw.word('topic')}.csv"
      f" ({draw.word('project')[:3].upper()}-{draw.number(100, 999)})"
      for _ in range(3)
  ]
  before = ["# Handed over", "", *earlier]
  text = (
      f"What is handed over is entered in `{path}`: one line at the end, `- PATH"
      f" ({code})`, where PATH is the file's path in the workspace. The lines above"
      " stay."
  )
  said = phrase(
      draw,
      f"Enter the file in the register by the rule {where}.",
      f"Then add it to the register as the rule {where} says.",
      f"The register gets an entry for it, in the way of the rule {where}.",
  )

  def handed(part: Part) -> Part:
    line = f"- {part.deliverables['result']['path']} ({code})"
    calls = [exec_call(f'cat {path}; echo "{line}" >> {path}; tail -n 2 {path}')]
    spec = {"kind": "lines", "path": path, "lines": [*before, line]}
    part = _more(part, said, calls, "skill_register", spec)
    return replace(
        part,
        workspace=part.workspace | {path: ("\n".join(before) + "\n").encode()},
        changed=part.changed | {path},
    )

  return Rule(text, handed=handed)


@_rule("ready")
def ready(draw: Setting, table: Table, sink: Sink, where: str) -> Rule | None:
  name = draw.word("done_sign")
  line = f"{draw.word('topic')} {draw.number(100, 999)} {draw.word('item')}"
  text = phrase(
      draw,
      f"When all is done, the folder of the result gets a file `{name}` with the one"
      f" line `{line}`.",
      f"The last thing to do is `{name}` in the folder of the result; its only line"
      f" is `{line}`.",
  )
  said = phrase(
      draw,
      f"At the very end, mark the folder as done by the rule {where}.",
      f"Last of all comes the sign that all is done, see the rule {where}.",
      f"Finish with the mark for a completed folder that the rule {where} asks for.",
  )

  def handed(part: Part) -> Part:
    folder = part.deliverables["result"]["path"].rpartition("/")[0]
    calls = [exec_call(f'echo "{line}" > {folder}/{name} && cat {folder}/{name}')]
    spec = {"kind": "lines", "path": f"{folder}/{name}", "lines": [line]}
    return _more(part, said, calls, "skill_ready", spec)

  return Rule(text, handed=handed)
