"""Disorder: the same records in a source that is less tidy.

A `Mess` changes how cells are written or how the file is encoded, never what
the records are: after `tidy`, `rows` are those of the clean table. What can't
be told from the source alone, its `said` tells. Which cells are touched goes
by their place, so that it is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from data_gen.compose.kinds.kind import (
    Files,
    Kind,
    any_table,
    as_given,
    encodable,
)
from data_gen.compose.table import Column, Table, cell


@dataclass(frozen=True)
class Mess:
  """See the module's docstring.

  Attributes:
    kinds: the names of the kinds that can be in it.
    said: what the request says of it, whole sentences, or nothing.
    written: the table as the source writes it.
    encoded: a text file's bytes, from those of the clean one.
    codec: what `load` then opens the file with.
    tidy: Python from the rows as written to those of the table; a template.
    fits: whether a table has anything to be changed.
    atomic: the taxonomy's operation that `tidy` is, "" where reading is enough.
  """

  name: str
  kinds: tuple[str, ...]
  said: str = ""
  written: Callable[[Table], Table] = as_given
  encoded: Callable[[bytes], bytes] | None = None
  codec: str = "utf-8"
  tidy: str = ""
  fits: Callable[[Table], bool] = any_table
  atomic: str = ""


def messy(kind: Kind, mess: Mess) -> Kind:
  """The kind in that state: written so, loaded with what it takes."""

  def write(table: Table, source: str) -> Files:
    files = kind.write(mess.written(kind.order(table)), source)
    if mess.encoded is None:
      return files
    return {path: mess.encoded(data) for path, data in files.items()}

  opened = kind.load.replace('encoding="utf-8"', f'encoding="{mess.codec}"')
  shown = f"""python3 -c 'print(open("{{path}}", encoding="{mess.codec}").read())'"""
  return replace(
      kind,
      name=f"{kind.name}_{mess.name}",
      write=write,
      load="\n".join(filter(None, (opened, mess.tidy))),
      look=shown if mess.codec in ("latin-1", "utf-16") else kind.look,
      fits=lambda table: kind.fits(table) and mess.fits(table),
      said=" ".join(filter(None, (kind.said, mess.said))),
      atomics=(*kind.atomics, *filter(None, (mess.atomic,))),
  )


def _rewritten(
    table: Table, types: tuple[str, ...], form: Callable[[Any, int], str]
) -> Table:
  """The columns of `types` as text, each cell by `form` of value and place."""
  touched = [column.type in types for column in table.columns]
  columns = (
      Column(c.name, "text") if yes else c for c, yes in zip(table.columns, touched)
  )
  rows = (
      tuple(
          form(value, line + at) if yes else value
          for at, (value, yes) in enumerate(zip(row, touched))
      )
      for line, row in enumerate(table.rows)
  )
  return Table(tuple(columns), tuple(rows))


def _each(change: str) -> str:
  """`tidy` of every cell `v` alone."""
  return (
      f"import re\ntidy = lambda v: {change}\n"
      "rows = [{{k: tidy(v) for k, v in r.items()}} for r in rows]"
  )


def _has(*types: str) -> Callable[[Table], bool]:
  return lambda table: bool(table.of_type(*types))


_NUMBERS = ("money", "integer")
_WORDS = ("text", "category")


def _all(form: Callable[[Any], str], *types: str) -> Callable[[Table], Table]:
  """`written` that gives each value of these types the form."""
  return lambda table: _rewritten(table, types, lambda value, _: form(value))


def _now_and_then(form: Callable[[str], str]) -> Callable[[Table], Table]:
  """`written` that gives half of the words and texts the form."""
  return lambda table: _rewritten(
      table, _WORDS, lambda v, place: cell(v) if place % 2 else form(cell(v))
  )


def _date_mess(name: str, order: str, form: str, pattern: str) -> Mess:
  return Mess(
      name,
      _CELLS,
      f"Dates in it are written {order}; write them as YYYY-MM-DD.",
      written=_all(lambda d: form.format(d=d, month=_MONTHS[d.month - 1]), "date"),
      tidy="import datetime\n"
      "def tidy(v):\n"
      "  try:\n"
      f'    return datetime.datetime.strptime(v, "{pattern}").date().isoformat()\n'
      "  except ValueError:\n"
      "    return v\n"
      "rows = [{{k: tidy(v) for k, v in r.items()}} for r in rows]",
      fits=_has("date"),
      atomic="normalisation",
  )


def _grouped(value: int | Decimal) -> str:
  return f"{value:,.2f}" if isinstance(value, Decimal) else f"{value:,}"


def _has_blanks(table: Table) -> bool:
  words = (table.column(name) for name in table.of_type(*_WORDS))
  return any(" " in cell(value) for column in words for value in column)


def _padded(table: Table) -> Table:
  pads = (("", ""), (" ", ""), ("", "  "), (" ", " "))

  def form(value: Any, place: int) -> str:
    before, after = pads[place % len(pads)]
    return before + cell(value) + after

  return _rewritten(table, tuple({c.type: 0 for c in table.columns}), form)


def _repeated(table: Table) -> Table:
  """Every sixth row again, some rows further down."""
  rows = list(table.rows)
  for at in range(len(rows) - 1, -1, -6):
    rows.insert(at + 4, rows[at])
  return table.with_rows(rows)


def _spaced(data: bytes) -> bytes:
  """A blank line after every third."""
  lines = data.splitlines(keepends=True)
  return b"".join(
      line + (b"\n" if number % 3 == 0 else b"") for number, line in enumerate(lines, 1)
  )


_MONTHS = (
    "January February March April May June July August September October November"
    " December"
).split()
_STRINGS = tuple(
    "csv tsv json jsonl yaml toml xml html log sqlite xlsx zip tar".split()
)  # kinds whose cells can hold blanks and line breaks at their ends
_CELLS = (*_STRINGS, "markdown", "ini", "docx", "pdf", "vcard")

MESSES = {
    mess.name: mess
    for mess in (
        Mess(
            "latin1", ("csv", "tsv", "markdown", "log", "ini"),
            "The file is in Latin-1; a non-breaking space in it stands for a plain"
            " one.",
            written=_now_and_then(lambda text: text.replace(" ", "\u00a0")),
            encoded=lambda data: data.decode().encode("latin-1"),
            codec="latin-1",
            tidy=_each('v.replace("\\u00a0", " ")'),
            fits=lambda t: _has_blanks(t) and encodable("latin-1")(t),
            atomic="normalisation",
        ),
        Mess(
            "utf16", ("csv", "tsv", "markdown", "json", "jsonl", "log"),
            "The file is in UTF-16.",
            encoded=lambda data: b"\xff\xfe" + data.decode().encode("utf-16-le"),
            codec="utf-16",
        ),
        Mess(
            "bom", ("csv", "tsv", "json", "markdown", "ini"),
            encoded=lambda data: b"\xef\xbb\xbf" + data,
            codec="utf-8-sig",
        ),
        Mess(
            "crlf",
            tuple("csv tsv json jsonl markdown xml html yaml toml ini log".split()),
            encoded=lambda data: data.replace(b"\n", b"\r\n"),
        ),
        Mess("blank_lines", ("csv", "tsv", "jsonl", "yaml", "log"), encoded=_spaced),
        Mess(
            "padded", _STRINGS,
            "Blanks around the text of a cell don't count.",
            written=_padded, tidy=_each("v.strip()"), atomic="normalisation",
        ),
        Mess(
            "wrapped", _STRINGS,
            "A line break inside a cell stands for a blank.",
            written=_now_and_then(lambda text: "\n".join(text.rsplit(" ", 1))),
            tidy=_each('v.replace("\\n", " ")'), fits=_has_blanks,
            atomic="normalisation",
        ),
        Mess(
            "thousands", (*_CELLS, "mbox", "eml", "git", "notes"),
            "Its numbers have commas between the thousands; write them without.",
            written=_all(_grouped, *_NUMBERS),
            tidy=_each(
                'v.replace(",", "")'
                ' if re.fullmatch(r"\\d{{1,3}}(,\\d{{3}})+(\\.\\d+)?", v) else v'
            ),
            fits=lambda t: any(
                t.named(name).high >= 1000 for name in t.of_type(*_NUMBERS)
            ),
            atomic="normalisation",
        ),
        Mess(
            "decimal_comma", (*_CELLS, "mbox", "eml", "git", "notes"),
            "Its numbers have a decimal comma; write them with a point.",
            written=_all(lambda value: cell(value).replace(".", ","), "money"),
            tidy=_each('re.sub(r"^(-?\\d+),(\\d\\d)$", r"\\1.\\2", v)'),
            fits=_has("money"), atomic="normalisation",
        ),
        _date_mess("day_first", "day.month.year", "{d:%d.%m.%Y}", "%d.%m.%Y"),
        _date_mess("month_first", "month/day/year", "{d:%m/%d/%Y}", "%m/%d/%Y"),
        _date_mess(
            "long_dates", "as 5 March 2026", "{d.day} {month} {d:%Y}", "%d %B %Y"
        ),
        Mess(
            "duplicates",
            tuple("csv tsv json jsonl markdown html xlsx sqlite zip eml mbox".split()),
            "Some records are in it more than once, the same in every field: each"
            " counts once.",
            written=_repeated,
            tidy="once = dict.fromkeys(tuple(r.items()) for r in rows)\n"
            "rows = [dict(r) for r in once]",
            fits=lambda t: bool(t.of_type("id")) and len(set(t.rows)) == len(t.rows),
            atomic="deduplication",
        ),
    )
}  # fmt: skip
