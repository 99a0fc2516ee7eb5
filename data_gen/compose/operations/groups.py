"""Operations that give one row a group, or a row a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from statistics import median

from data_gen.compose.operations.registry import (
    CENT,
    DAYS,
    ROUNDED,
    Step,
    bounded,
    one,
    operation,
    phrase,
)
from data_gen.compose.setting import Setting
from data_gen.compose.table import Column, Table


def by_group(table: Table, group: str, value: str) -> dict[str, list]:
  """The values of each group, groups in order."""
  found: dict[str, list] = {}
  for key, amount in zip(table.column(group), table.column(value)):
    found.setdefault(key, []).append(amount)
  return dict(sorted(found.items()))


def _grouped(
    table: Table, group: str, column: Column, values: dict[str, object]
) -> Table | None:
  if group == column.name:
    return None
  return Table((table.named(group), column), tuple(values.items()))


@operation("groups", "aggregation")
def total_by(setting: Setting, table: Table) -> Step | None:
  group = one(setting, table.of_type("category"))
  value = one(setting, table.of_type("money", "integer"))
  if group is None or value is None:
    return None
  kind = table.named(value).type
  totals = {k: sum(v) for k, v in by_group(table, group, value).items()}
  form = 'f"{v:.2f}"' if kind == "money" else "str(v)"
  return Step(
      phrase(
          setting,
          f"add up {value} for each {group}, sorted by {group}",
          f"total {value} by {group}, the {group} in alphabetical order",
          f"sum {value} within each {group} and list them by {group}",
      ),
      "from decimal import Decimal\n"
      "sums = {}\n"
      "for r in rows:\n"
      f'  sums[r["{group}"]] = sums.get(r["{group}"], 0) + Decimal(r["{value}"])\n'
      f'rows = [{{"{group}": k, "{value}": {form}}} for k, v in sorted(sums.items())]',
      Table((table.named(group), Column(value, kind)), tuple(totals.items())),
      ordered=True,
  )


@operation("groups", "aggregation")
def count_by(setting: Setting, table: Table) -> Step | None:
  group = one(setting, table.of_type("category"))
  if group is None or group == "count":
    return None
  counts = Counter(table.column(group))
  return Step(
      phrase(
          setting,
          f"count the rows for each {group} as count, sorted by {group}",
          f"say how many rows each {group} has (count), in order of {group}",
          f"tally the rows per {group} in a column count, alphabetically by {group}",
      ),
      "from collections import Counter\n"
      f'counts = Counter(r["{group}"] for r in rows)\n'
      f'rows = [{{"{group}": k, "count": str(v)}} for k, v in sorted(counts.items())]',
      _grouped(table, group, Column("count", "integer"), dict(sorted(counts.items()))),
      ordered=True,
  )


@operation("groups", "aggregation")
def mean_by(setting: Setting, table: Table) -> Step | None:
  group = one(setting, table.of_type("category"))
  value = one(setting, table.of_type("money"))
  if group is None or value is None:
    return None
  means = {
      k: (sum(v) / len(v)).quantize(CENT, ROUND_HALF_UP)
      for k, v in by_group(table, group, value).items()
  }
  return Step(
      phrase(
          setting,
          f"average {value} for each {group}, halves rounded up to two decimals, sorted"
          f" by {group}",
          f"work out the mean {value} of each {group} (two decimals, halves up), in"
          f" order of {group}",
          f"give the average {value} per {group}, rounded half up to two decimals and"
          f" listed by {group}",
      ),
      "from decimal import Decimal, ROUND_HALF_UP\n"
      "found = {}\n"
      "for r in rows:\n"
      f'  found.setdefault(r["{group}"], []).append(Decimal(r["{value}"]))\n'
      f"mean = lambda v: str((sum(v) / len(v)){ROUNDED})\n"
      f'rows = [{{"{group}": k, "{value}": mean(v)}} for k, v in'
      ' sorted(found.items())]',
      Table((table.named(group), Column(value, "money")), tuple(means.items())),
      ordered=True,
  )


@operation("groups", "aggregation")
def median_by(setting: Setting, table: Table) -> Step | None:
  group = one(setting, table.of_type("category"))
  value = one(setting, table.of_type("money"))
  if group is None or value is None:
    return None
  middles = {
      k: Decimal(median(v)).quantize(CENT, ROUND_HALF_UP)
      for k, v in by_group(table, group, value).items()
  }
  return Step(
      phrase(
          setting,
          f"take the median {value} of each {group}, halves rounded up to two decimals,"
          f" sorted by {group}",
          f"find the middle {value} (median, two decimals, halves up) for every"
          f" {group}, in order of {group}",
          f"give the median of {value} per {group}, rounded half up to two decimals,"
          f" listed by {group}",
      ),
      "from decimal import Decimal, ROUND_HALF_UP\nfrom statistics import median\n"
      "found = {}\n"
      "for r in rows:\n"
      f'  found.setdefault(r["{group}"], []).append(Decimal(r["{value}"]))\n'
      f"middle = lambda v: str(median(v){ROUNDED})\n"
      f'rows = [{{"{group}": k, "{value}": middle(v)}}'
      " for k, v in sorted(found.items())]",
      Table((table.named(group), Column(value, "money")), tuple(middles.items())),
      ordered=True,
  )


@operation("groups", "aggregation")
def range_by(setting: Setting, table: Table) -> Step | None:
  group = one(setting, table.of_type("category"))
  value = one(setting, table.of_type("money", "integer"))
  if group is None or value is None or group in ("lowest", "highest"):
    return None
  kind = table.named(value).type
  found = by_group(table, group, value)
  return Step(
      phrase(
          setting,
          f"give the lowest and the highest {value} of each {group} as lowest and"
          f" highest, sorted by {group}",
          f"find for every {group} the smallest and largest {value} (columns lowest and"
          f" highest), in order of {group}",
          f"list each {group} alphabetically with its lowest and highest {value}, in"
          " columns of these names",
      ),
      "found = {}\n"
      "for r in rows:\n"
      f'  found.setdefault(r["{group}"], []).append(r["{value}"])\n'
      f'rows = [{{"{group}": k, "lowest": min(v, key=float),'
      ' "highest": max(v, key=float)} for k, v in sorted(found.items())]',
      Table(
          (table.named(group), Column("lowest", kind), Column("highest", kind)),
          tuple((k, min(v), max(v)) for k, v in found.items()),
      ),
      ordered=True,
  )


@operation("groups", "aggregation")
def different_by(setting: Setting, table: Table) -> Step | None:
  names = table.of_type("category")
  if len(names) < 2:
    return None
  group, value = setting.rng.sample(names, 2)
  if group == "different":
    return None
  counts = {k: len(set(v)) for k, v in by_group(table, group, value).items()}
  return Step(
      phrase(
          setting,
          f"count how many different {value} each {group} has, as different, sorted by"
          f" {group}",
          f"say for each {group} in how many distinct {value} it occurs (column"
          f" different), in order of {group}",
          f"list by {group} the number of distinct {value}, as different",
      ),
      "found = {}\n"
      "for r in rows:\n"
      f'  found.setdefault(r["{group}"], set()).add(r["{value}"])\n'
      f'rows = [{{"{group}": k, "different": str(len(v))}}'
      " for k, v in sorted(found.items())]",
      _grouped(table, group, Column("different", "integer"), counts),
      ordered=True,
  )


def _by_date(
    table: Table, date: str, value: str, key: Callable[[object], object]
) -> dict[object, Decimal]:
  sums: dict[object, Decimal] = {}
  for day, amount in zip(table.column(date), table.column(value)):
    sums[key(day)] = sums.get(key(day), Decimal(0)) + amount
  return dict(sorted(sums.items()))


@operation("groups", "date handling")
def by_month(setting: Setting, table: Table) -> Step | None:
  date = one(setting, table.of_type("date"))
  value = one(setting, table.of_type("money"))
  if date is None or value is None or value == "month":
    return None
  sums = _by_date(table, date, value, lambda d: d.isoformat()[:7])
  return Step(
      phrase(
          setting,
          f"add up {value} for each month of {date} (month, as 2031-02), oldest first",
          f"total {value} by the month of {date} in a column month of the form YYYY-MM,"
          " from the first month on",
          f"sum {value} per month (column month, YYYY-MM, from {date}), sorted by"
          " month",
      ),
      "from decimal import Decimal\n"
      "sums = {}\n"
      "for r in rows:\n"
      f'  month = r["{date}"][:7]\n'
      f'  sums[month] = sums.get(month, 0) + Decimal(r["{value}"])\n'
      f'rows = [{{"month": k, "{value}": f"{{v:.2f}}"}} for k, v in'
      ' sorted(sums.items())]',
      Table((Column("month", "text"), Column(value, "money")), tuple(sums.items())),
      ordered=True,
  )


@operation("groups", "date handling")
def by_weekday(setting: Setting, table: Table) -> Step | None:
  date = one(setting, table.of_type("date"))
  value = one(setting, table.of_type("money"))
  if date is None or value is None or value == "weekday":
    return None
  sums = _by_date(table, date, value, lambda d: d.weekday())
  return Step(
      phrase(
          setting,
          f"add up {value} for each weekday of {date} (weekday, English name), Monday"
          " first, days without rows left out",
          f"total {value} by the day of the week of {date}: column weekday with English"
          " names, from Monday on, only days that occur",
          f"sum {value} per weekday of {date}, with the English name in weekday,"
          " ordered Monday to Sunday, without days that have no rows",
      ),
      "from datetime import date\nfrom decimal import Decimal\n"
      'names = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()\n'
      "sums = {}\n"
      "for r in rows:\n"
      f'  day = date.fromisoformat(r["{date}"]).weekday()\n'
      f'  sums[day] = sums.get(day, 0) + Decimal(r["{value}"])\n'
      f'rows = [{{"weekday": names[k], "{value}": f"{{v:.2f}}"}}'
      " for k, v in sorted(sums.items())]",
      Table(
          (Column("weekday", "text"), Column(value, "money")),
          tuple((DAYS[k], v) for k, v in sums.items()),
      ),
      ordered=True,
  )


@operation("groups", "pivoting")
def pivot(setting: Setting, table: Table) -> Step | None:
  names = table.of_type("category")
  plain = [n for n in names if all(w.isidentifier() for w in table.named(n).words)]
  across = one(setting, plain)
  down = one(setting, [n for n in names if n != across])
  if across is None or down is None:
    return None
  words = sorted(table.named(across).words)
  if down in words:
    return None
  counts = Counter(zip(table.column(down), table.column(across)))
  keys = sorted(set(table.column(down)))
  return Step(
      phrase(
          setting,
          f"make a table with a row for each {down} and a column for each of"
          f" {', '.join(words)} (values of {across}), counting the rows, 0 where there"
          f" are none, sorted by {down}",
          f"pivot: {down} downwards in alphabetical order, the {across} values"
          f" {', '.join(words)} across as columns in this order, row counts in the"
          " cells (0 for none)",
          f"cross-tabulate {down} (rows, sorted) with {across} (columns"
          f" {', '.join(words)}), each cell the number of rows, 0 if none",
      ),
      "from collections import Counter\n"
      f'counts = Counter((r["{down}"], r["{across}"]) for r in rows)\n'
      f"words = {words!r}\n"
      f'rows = [{{"{down}": k, **{{w: str(counts[k, w]) for w in words}}}}'
      f' for k in sorted({{r["{down}"] for r in rows}})]',
      Table(
          (table.named(down), *(Column(w, "integer") for w in words)),
          tuple((k, *(counts[k, w] for w in words)) for k in keys),
      ),
      ordered=True,
  )


@operation("groups", "ranking")
def highest_of_each(setting: Setting, table: Table) -> Step | None:
  group = one(setting, table.of_type("category"))
  value = one(setting, table.of_type("money"))
  if group is None or value is None:
    return None
  if len(set(table.column(value))) != len(table.rows):
    return None
  at, of = table.index(group), table.index(value)
  best: dict[str, tuple] = {}
  for row in sorted(table.rows, key=lambda r: r[of]):
    best[row[at]] = row
  return Step(
      phrase(
          setting,
          f"keep for each {group} only the row with the highest {value}, sorted by"
          f" {group}",
          f"take the one row of every {group} that has the most {value}, in order of"
          f" {group}",
          f"find the top row by {value} within each {group} and list them by {group}",
      ),
      "best = {}\n"
      f'for r in sorted(rows, key=lambda r: float(r["{value}"])):\n'
      f'  best[r["{group}"]] = r\n'
      "rows = [best[k] for k in sorted(best)]",
      table.with_rows(best[k] for k in sorted(best)),
      ordered=True,
  )


@operation("groups", "aggregation")
def summary(setting: Setting, table: Table) -> Step | None:
  value = one(setting, table.of_type("money"))
  if value is None or not table.rows:
    return None
  values = table.column(value)
  mean = (sum(values) / len(values)).quantize(CENT, ROUND_HALF_UP)
  rows = (
      ("rows", Decimal(len(values))), ("total", sum(values)), ("lowest", min(values)),
      ("highest", max(values)), ("mean", mean),
  )  # fmt: skip
  return Step(
      phrase(
          setting,
          f"summarise {value} in the columns figure and value: rows (how many), total,"
          " lowest, highest and mean, in this order, two decimals, halves up",
          f"give five figures of {value} (columns figure and value): rows, total,"
          " lowest, highest, mean, one a row and in that order, all with two decimals,"
          " rounded half up",
          "make a list with the columns figure and value that has rows (their number),"
          f" total, lowest, highest and mean of {value}, each with two decimals, halves"
          " up",
      ),
      "from decimal import Decimal, ROUND_HALF_UP\n"
      f'v = [Decimal(r["{value}"]) for r in rows]\n'
      'found = {"rows": Decimal(len(v)), "total": sum(v), "lowest": min(v),'
      ' "highest": max(v), "mean": sum(v) / len(v)}\n'
      f'rows = [{{"figure": k, "value": str(n{ROUNDED})}} for k, n in found.items()]',
      Table((Column("figure", "text"), Column("value", "money")), rows),
      ordered=True,
  )


@operation("groups", "validation")
def violations(setting: Setting, table: Table) -> Step | None:
  """A report of the rows that break two rules."""
  key = one(setting, table.of_type("id"))
  column = one(setting, table.of_type("category"))
  number = one(setting, bounded(table))
  if key is None or number is None or column is None or key == "problem":
    return None
  value = setting.rng.choice(table.named(column).words)
  low, high = table.named(number).low, table.named(number).high
  limit = setting.rng.randint((low + 2 * high) // 3, (low + 4 * high) // 5)
  at, of, by = map(table.index, (key, number, column))
  found = []
  for row in sorted(table.rows, key=lambda r: r[at]):
    if row[of] > limit:
      found.append((row[at], f"{number} too high"))
    if row[by] == value:
      found.append((row[at], f"{column} not allowed"))
  if len({row[at] for row in table.rows}) != len(table.rows):
    return None
  return Step(
      phrase(
          setting,
          f'check every row: {number} above {limit} is the problem "{number} too high",'
          f' {column} {value} is the problem "{column} not allowed"; list {key} and'
          f" problem, sorted by {key}, the first problem first where a row has both",
          f"validate the rows and report {key} and problem in order of {key}:"
          f' "{number} too high" where {number} is over {limit}, then "{column} not'
          f' allowed" where {column} is {value} (a row can have both)',
          f"make a list of what is wrong, with the columns {key} and problem, by {key}:"
          f' rows with {number} above {limit} get "{number} too high", rows whose'
          f' {column} is {value} get "{column} not allowed", both if both',
      ),
      "found = []\n"
      f'for r in sorted(rows, key=lambda r: r["{key}"]):\n'
      f'  if float(r["{number}"]) > {limit}:\n'
      f'    found.append({{"{key}": r["{key}"], "problem": "{number} too high"}})\n'
      f'  if r["{column}"] == "{value}":\n'
      f'    found.append({{"{key}": r["{key}"], "problem": "{column} not allowed"}})\n'
      "rows = found",
      Table((table.named(key), Column("problem", "text")), tuple(found)),
      ordered=True,
  )
