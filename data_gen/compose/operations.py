"""Operations on tables: what is asked, the code that does it, and the result.

An operation is given a setting and a table and gives a `Step`, or None where
the table has no columns for it. `code` works on `rows`, a list of dicts of
text; `table` is the result computed here from typed values. Every literal of
the code is said in `said`.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from data_gen.compose.setting import Setting
from data_gen.compose.table import Column, Table


@dataclass(frozen=True)
class Step:
  """One operation applied.

  Attributes:
    said: an imperative clause, without its full stop.
    code: Python from `rows` to `rows`.
    table: what `rows` hold then.
    ordered: whether the order of the rows is part of the result.
  """

  said: str
  code: str
  table: Table
  ordered: bool = False


@dataclass(frozen=True)
class Operation:
  """A registered operation; `shape` is `rows` (records stay records) or
  `groups` (one row a group, so that only sorting can follow)."""

  name: str
  shape: str
  atomic: str
  apply: Callable[[Setting, Table], Step | None]


OPERATIONS: dict[str, Operation] = {}


def operation(shape: str, atomic: str) -> Callable:
  """Registers the decorated function; `atomic` names the taxonomy's operation."""

  def register(apply: Callable[[Setting, Table], Step | None]) -> Callable:
    name = apply.__name__
    OPERATIONS[name] = Operation(name, shape, atomic, apply)
    return apply

  return register


def _one(setting: Setting, names: list[str]) -> str | None:
  """A column that the frame chooses; drawn even where there is one."""
  return setting.rng.choice(names) if names else None


@operation("rows", "filtering")
def keep_value(setting: Setting, table: Table) -> Step | None:
  column = _one(setting, table.of_type("category"))
  if column is None:
    return None
  value = setting.rng.choice(table.named(column).words)
  return Step(
      f"keep only the rows whose {column} is {value}",
      f'rows = [r for r in rows if r["{column}"] == "{value}"]',
      table.where(lambda r: r[column] == value),
  )


@operation("rows", "filtering")
def drop_value(setting: Setting, table: Table) -> Step | None:
  column = _one(setting, table.of_type("category"))
  if column is None:
    return None
  value = setting.rng.choice(table.named(column).words)
  return Step(
      f"leave out every row whose {column} is {value}",
      f'rows = [r for r in rows if r["{column}"] != "{value}"]',
      table.where(lambda r: r[column] != value),
  )


@operation("rows", "filtering")
def above(setting: Setting, table: Table) -> Step | None:
  column = _one(setting, table.of_type("money", "integer"))
  if column is None:
    return None
  low, high = table.named(column).low, table.named(column).high
  limit = setting.rng.randint((3 * low + high) // 4, (low + 3 * high) // 4)
  return Step(
      f"keep only the rows with {column} above {limit}",
      f'rows = [r for r in rows if float(r["{column}"]) > {limit}]',
      table.where(lambda r: r[column] > limit),
  )


@operation("groups", "aggregation")
def total_by(setting: Setting, table: Table) -> Step | None:
  group = _one(setting, table.of_type("category"))
  value = _one(setting, table.of_type("money", "integer"))
  if group is None or value is None:
    return None
  kind = table.named(value).type
  totals: dict[str, Decimal | int] = {}
  for key, amount in zip(table.column(group), table.column(value)):
    totals[key] = totals.get(key, 0) + amount
  form = 'f"{v:.2f}"' if kind == "money" else "str(v)"
  return Step(
      f"add up {value} for each {group}, sorted by {group}",
      "from decimal import Decimal\n"
      "sums = {}\n"
      "for r in rows:\n"
      f'  sums[r["{group}"]] = sums.get(r["{group}"], 0) + Decimal(r["{value}"])\n'
      f'rows = [{{"{group}": k, "{value}": {form}}} for k, v in sorted(sums.items())]',
      Table(
          (table.named(group), Column(value, kind)), tuple(sorted(totals.items()))
      ),
      ordered=True,
  )


@operation("groups", "aggregation")
def count_by(setting: Setting, table: Table) -> Step | None:
  group = _one(setting, table.of_type("category"))
  if group is None:
    return None
  counts = Counter(table.column(group))
  return Step(
      f"count the rows for each {group} as count, sorted by {group}",
      "from collections import Counter\n"
      f'counts = Counter(r["{group}"] for r in rows)\n'
      f'rows = [{{"{group}": k, "count": str(v)}} for k, v in sorted(counts.items())]',
      Table(
          (table.named(group), Column("count", "integer")),
          tuple(sorted(counts.items())),
      ),
      ordered=True,
  )


@operation("groups", "aggregation")
def mean_by(setting: Setting, table: Table) -> Step | None:
  group = _one(setting, table.of_type("category"))
  value = _one(setting, table.of_type("money"))
  if group is None or value is None:
    return None
  values: dict[str, list[Decimal]] = {}
  for key, amount in zip(table.column(group), table.column(value)):
    values.setdefault(key, []).append(amount)
  cent = Decimal("0.01")
  means = {k: (sum(v) / len(v)).quantize(cent, ROUND_HALF_UP) for k, v in values.items()}
  return Step(
      f"average {value} for each {group}, halves rounded up to two decimals, sorted by"
      f" {group}",
      "from decimal import Decimal, ROUND_HALF_UP\n"
      "found = {}\n"
      "for r in rows:\n"
      f'  found.setdefault(r["{group}"], []).append(Decimal(r["{value}"]))\n'
      'mean = lambda v: str((sum(v) / len(v)).quantize(Decimal("0.01"), ROUND_HALF_UP))\n'
      f'rows = [{{"{group}": k, "{value}": mean(v)}} for k, v in sorted(found.items())]',
      Table(
          (table.named(group), Column(value, "money")),
          tuple(sorted(means.items())),
      ),
      ordered=True,
  )


@operation("rows", "sorting")
def top(setting: Setting, table: Table) -> Step | None:
  column = _one(setting, table.of_type("money"))
  count = setting.rng.choice((3, 5, 8))
  if column is None:
    return None
  values = table.column(column)
  if len(set(values)) != len(values) or len(values) <= count:
    return None
  at = table.index(column)
  rows = sorted(table.rows, key=lambda r: r[at], reverse=True)[:count]
  return Step(
      f"take the {count} rows with the highest {column}, highest first",
      f'rows = sorted(rows, key=lambda r: float(r["{column}"]), reverse=True)[:{count}]',
      table.with_rows(rows),
      ordered=True,
  )


@operation("rows", "date handling")
def since(setting: Setting, table: Table) -> Step | None:
  column = _one(setting, table.of_type("date"))
  back = setting.rng.choice((30, 45, 60))
  if column is None:
    return None
  first = setting.today - datetime.timedelta(days=back)
  return Step(
      f"keep only the rows with {column} on or after {first.isoformat()}",
      f'rows = [r for r in rows if r["{column}"] >= "{first.isoformat()}"]',
      table.where(lambda r: r[column] >= first),
  )
