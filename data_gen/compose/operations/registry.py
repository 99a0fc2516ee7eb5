"""What an operation is, and the table of all of them.

`code` and `table` of a step are two ways to one result: what Python does with
texts in the sandbox, and what is computed here from typed values. What an
operation chooses (columns, words, limits) comes from the frame alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from data_gen.compose.setting import Setting
from data_gen.compose.table import Column, Table


@dataclass(frozen=True)
class Step:
  """One operation applied.

  Attributes:
    said: an imperative clause, without its full stop; `{other}` stands for the
      path of the second file.
    code: Python from `rows` (and `other`, the rows of the second file) to `rows`.
    table: what `rows` hold then.
    ordered: whether the order of the rows is part of the result.
    arranges: whether the order is all that the step changes, so that a chain
      needs another step beside it.
  """

  said: str
  code: str
  table: Table
  ordered: bool = False
  arranges: bool = False


@dataclass(frozen=True)
class Operation:
  """A registered operation.

  Attributes:
    shape: `rows` (records stay records) or `groups` (one row a group, so that
      only sorting can follow).
    atomic: the taxonomy's operation.
    apply: (setting, table), and the second table where there is one, to a step,
      or None where the table has no columns for it.
    second: makes the second file's table from the source's.
    stem: the second file's name without suffix.
    prepare: makes the source untidy in the way that this operation mends; then
      it must come first.
  """

  name: str
  shape: str
  atomic: str
  apply: Callable[..., Step | None]
  second: Callable[[Setting, Table], Table | None] | None = None
  stem: str = ""
  prepare: Callable[[Setting, Table], Table | None] | None = None


OPERATIONS: dict[str, Operation] = {}

CENT = Decimal("0.01")
ROUNDED = '.quantize(Decimal("0.01"), ROUND_HALF_UP)'  # the same, in code
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def operation(
    shape: str,
    atomic: str,
    second: Callable[[Setting, Table], Table | None] | None = None,
    stem: str = "",
    prepare: Callable[[Setting, Table], Table | None] | None = None,
) -> Callable:
  """Registers the decorated function under its name."""

  def register(apply: Callable[..., Step | None]) -> Callable:
    name = apply.__name__
    OPERATIONS[name] = Operation(name, shape, atomic, apply, second, stem, prepare)
    return apply

  return register


def one(setting: Setting, names: list[str]) -> str | None:
  """A column that the frame chooses; drawn even where there is one."""
  return setting.rng.choice(names) if names else None


def phrase(setting: Setting, *wordings: str) -> str:
  """One of the ways to say it."""
  return setting.rng.choice(wordings)


def extended(table: Table, column: Column, values: Iterable[Any]) -> Table | None:
  """The table with one more column; None where it has that name already."""
  if column.name in table.names:
    return None
  rows = tuple((*row, value) for row, value in zip(table.rows, values))
  return Table((*table.columns, column), rows)


def bounded(table: Table) -> list[str]:
  """Columns of numbers whose bounds are known."""
  numbers = table.of_type("money", "integer")
  return [name for name in numbers if table.named(name).low < table.named(name).high]
