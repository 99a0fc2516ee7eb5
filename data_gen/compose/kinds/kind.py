"""What a kind of record file is, and the few things that kinds share.

`write` renders a table; `load` is the Python that an agent would write to get
its rows, a list of dicts of text, from the source named `path`. The two are
separate ways: nothing of `write` runs in a solution. `load` finds `json`
imported and needs the standard library of Python 3.10, and git for
repositories. Bytes are the same for the same table on every machine: no clock,
no owner, no compressor whose output may change between versions.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from data_gen.compose.table import Table

Files = dict[str, bytes]


def any_table(table: Table) -> bool:
  return True


def as_given(table: Table) -> Table:
  return table


@dataclass(frozen=True)
class Kind:
  """See the module's docstring.

  Attributes:
    suffix: of the source; empty where it is a folder.
    called: what an instruction calls such a source.
    write: the files of a table whose source is the path given: the path itself,
      or paths under it where the source is a folder.
    load: with {path}; from the source to `rows`, in the order of `order`.
    look: the command that shows it, with {path}; empty where `read` does.
    fits: whether such a source can hold a table. It looks at columns and at
      which characters occur, so another drawing of the records fits as well.
    order: the rows as the source keeps them (mail, notes and commits: by date).
    said: what a request must say of the source for the result to follow from it,
      whole sentences, or nothing.
    atomics: the taxonomy's operations of getting at its records.
  """

  name: str
  suffix: str
  called: str
  write: Callable[[Table, str], Files]
  load: str
  look: str = ""
  fits: Callable[[Table], bool] = any_table
  order: Callable[[Table], Table] = as_given
  said: str = ""
  atomics: tuple[str, ...] = ("file reading",)


def title(source: str) -> str:
  """The name of the records: the source's, without suffixes, as an identifier."""
  stem = re.sub(r"\W", "_", PurePosixPath(source).name.split(".")[0], flags=re.ASCII)
  return stem if not stem[:1].isdigit() else f"_{stem}"


def records(table: Table) -> list[dict[str, str]]:
  """The rows as name -> text."""
  return [dict(zip(table.names, cells)) for cells in table.cells()]


def one_file(
    render: Callable[[Table, str], str | bytes],
) -> Callable[[Table, str], Files]:
  """The `write` of a kind whose source is one file, rendered under its title."""

  def write(table: Table, source: str) -> Files:
    data = render(table, title(source))
    return {source: data.encode() if isinstance(data, str) else data}

  return write


def dated(table: Table) -> bool:
  return bool(table.of_type("date"))


def by_date(table: Table) -> Table:
  """The rows by their first date; those of a day keep their order."""
  at = table.index(table.of_type("date")[0])
  return table.with_rows(sorted(table.rows, key=lambda row: row[at]))


def days(table: Table) -> list[datetime.date]:
  """The first date of each row."""
  return table.column(table.of_type("date")[0])


def encodable(codec: str) -> Callable[[Table], bool]:
  """Whether every cell can be written in `codec`."""

  def fits(table: Table) -> bool:
    try:
      "".join(map("".join, table.cells())).encode(codec)
    except UnicodeEncodeError:
      return False
    return True

  return fits
