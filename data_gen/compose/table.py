"""Records with types: what files of every kind hold and operations work on.

Values are what the type says (`text`, `category` and `id`: str, `integer`:
int, `money`: Decimal with two places, `date`: datetime.date). `cells` is the
one way they are written: ISO dates, money with a point and two places.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

TYPES = ("id", "text", "category", "integer", "money", "date")
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Column:
  """A name, as files and instructions write it, and one of `TYPES`.

  What an instruction may say of its values: `words` are those that a category
  has, `low` and `high` the bounds of a number. They belong to the frame, so
  they are the same over other records. `form` is what a text is (`email`,
  `phone`, `time`, …; see `topics.topic`) or a number (`percent`).
  """

  name: str
  type: str
  words: tuple[str, ...] = ()
  low: int = 0
  high: int = 0
  form: str = ""

  def __post_init__(self) -> None:
    if self.type not in TYPES:
      raise ValueError(f"column {self.name} has no type {self.type!r}")


@dataclass(frozen=True)
class Table:
  """Columns and rows of their types; rows have one value a column."""

  columns: tuple[Column, ...]
  rows: tuple[Row, ...]

  @property
  def names(self) -> list[str]:
    return [column.name for column in self.columns]

  def of_type(self, *types: str) -> list[str]:
    """The names of the columns of these types, in order."""
    return [column.name for column in self.columns if column.type in types]

  def named(self, name: str) -> Column:
    return self.columns[self.index(name)]

  def index(self, name: str) -> int:
    return self.names.index(name)

  def column(self, name: str) -> list[Any]:
    at = self.index(name)
    return [row[at] for row in self.rows]

  def where(self, keep: Callable[[dict[str, Any]], bool]) -> Table:
    """The rows for which `keep` holds, given as name -> value."""
    return self.with_rows(r for r in self.rows if keep(dict(zip(self.names, r))))

  def with_rows(self, rows: Iterable[Row]) -> Table:
    return Table(self.columns, tuple(rows))

  def cells(self) -> list[list[str]]:
    """The rows as text."""
    return [[cell(value) for value in row] for row in self.rows]


def cell(value: Any) -> str:
  """The text of one value."""
  if isinstance(value, Decimal):
    return f"{value:.2f}"
  if isinstance(value, datetime.date):
    return value.isoformat()
  return str(value)
