"""Operations that keep some of the rows, or put them in order."""

from __future__ import annotations

import datetime
from decimal import Decimal
from statistics import median

from data_gen.compose.operations.registry import Step, bounded, one, operation, phrase
from data_gen.compose.setting import Setting
from data_gen.compose.table import Table


@operation("rows", "filtering")
def keep_value(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("category"))
  if column is None:
    return None
  value = setting.rng.choice(table.named(column).words)
  return Step(
      phrase(
          setting,
          f"keep only the rows whose {column} is {value}",
          f"take just those with {value} as {column}",
          f"drop everything but {column} {value}",
      ),
      f'rows = [r for r in rows if r["{column}"] == "{value}"]',
      table.where(lambda r: r[column] == value),
  )


@operation("rows", "filtering")
def drop_value(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("category"))
  if column is None:
    return None
  value = setting.rng.choice(table.named(column).words)
  return Step(
      phrase(
          setting,
          f"leave out every row whose {column} is {value}",
          f"remove the rows with {value} as {column}",
          f"ignore all rows where {column} says {value}",
      ),
      f'rows = [r for r in rows if r["{column}"] != "{value}"]',
      table.where(lambda r: r[column] != value),
  )


@operation("rows", "filtering")
def one_of(setting: Setting, table: Table) -> Step | None:
  wide = [n for n in table.of_type("category") if len(table.named(n).words) > 2]
  column = one(setting, wide)
  if column is None:
    return None
  first, second = setting.rng.sample(table.named(column).words, 2)
  return Step(
      phrase(
          setting,
          f"keep only the rows whose {column} is {first} or {second}",
          f"take the rows where {column} is one of {first} and {second}",
          f"drop the rows whose {column} is neither {first} nor {second}",
      ),
      f'rows = [r for r in rows if r["{column}"] in ("{first}", "{second}")]',
      table.where(lambda r: r[column] in (first, second)),
  )


def _limit(setting: Setting, table: Table) -> tuple[str | None, int]:
  """A column of numbers and a limit in the middle half of its bounds."""
  column = one(setting, bounded(table))
  if column is None:
    return None, 0
  low, high = table.named(column).low, table.named(column).high
  return column, setting.rng.randint((3 * low + high) // 4, (low + 3 * high) // 4)


@operation("rows", "filtering")
def above(setting: Setting, table: Table) -> Step | None:
  column, limit = _limit(setting, table)
  if column is None:
    return None
  return Step(
      phrase(
          setting,
          f"keep only the rows with {column} above {limit}",
          f"take the rows whose {column} is more than {limit}",
          f"leave out the rows with {column} of {limit} or less",
      ),
      f'rows = [r for r in rows if float(r["{column}"]) > {limit}]',
      table.where(lambda r: r[column] > limit),
  )


@operation("rows", "filtering")
def below(setting: Setting, table: Table) -> Step | None:
  column, limit = _limit(setting, table)
  if column is None:
    return None
  return Step(
      phrase(
          setting,
          f"keep only the rows with {column} of at most {limit}",
          f"take the rows whose {column} is {limit} or less",
          f"leave out the rows with {column} above {limit}",
      ),
      f'rows = [r for r in rows if float(r["{column}"]) <= {limit}]',
      table.where(lambda r: r[column] <= limit),
  )


@operation("rows", "filtering")
def between(setting: Setting, table: Table) -> Step | None:
  column = one(setting, bounded(table))
  if column is None:
    return None
  low, high = table.named(column).low, table.named(column).high
  first = setting.rng.randint(low, (2 * low + high) // 3)
  last = setting.rng.randint((low + high) // 2, (low + 3 * high) // 4)
  if first >= last:
    return None
  return Step(
      phrase(
          setting,
          f"keep only the rows with {column} from {first} to {last}, both included",
          f"take the rows whose {column} is at least {first} and at most {last}",
          f"leave out the rows with {column} below {first} or above {last}",
      ),
      f'rows = [r for r in rows if {first} <= float(r["{column}"]) <= {last}]',
      table.where(lambda r: first <= r[column] <= last),
  )


@operation("rows", "filtering")
def above_mean(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("money", "integer"))
  if column is None or not table.rows:
    return None
  values = table.column(column)
  mean = Decimal(sum(values)) / len(values)
  return Step(
      phrase(
          setting,
          f"keep only the rows with {column} above the average {column} of them all",
          f"take the rows whose {column} is higher than the mean {column}",
          f"drop the rows with {column} not above its average",
      ),
      "from decimal import Decimal\n"
      f'values = [Decimal(r["{column}"]) for r in rows]\n'
      "mean = sum(values) / len(values)\n"
      "rows = [r for r, v in zip(rows, values) if v > mean]",
      table.where(lambda r: r[column] > mean),
  )


@operation("rows", "outlier detection")
def outliers(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("money", "integer"))
  share = setting.rng.choice((30, 40, 50))
  if column is None or not table.rows:
    return None
  middle = Decimal(median(table.column(column)))
  far = lambda value: abs(value - middle) * 100 > share * middle
  return Step(
      phrase(
          setting,
          f"keep only the rows whose {column} is more than {share} percent away from"
          f" the median {column}",
          f"take the outliers: rows with {column} further than {share} percent of the"
          " median from the median",
          f"find the rows whose {column} lies more than {share} percent above or below"
          " the median, and drop the others",
      ),
      "from decimal import Decimal\nfrom statistics import median\n"
      f'values = [Decimal(r["{column}"]) for r in rows]\n'
      "middle = median(values)\n"
      "rows = [r for r, v in zip(rows, values)"
      f" if abs(v - middle) * 100 > {share} * middle]",
      table.where(lambda r: far(r[column])),
  )


@operation("rows", "filtering")
def any_of_two(setting: Setting, table: Table) -> Step | None:
  """Two conditions; one of them is enough."""
  column, number = one(setting, table.of_type("category")), one(setting, bounded(table))
  if column is None or number is None:
    return None
  value = setting.rng.choice(table.named(column).words)
  low, high = table.named(number).low, table.named(number).high
  limit = setting.rng.randint((low + 2 * high) // 3, (low + 5 * high) // 6)
  return Step(
      phrase(
          setting,
          f"keep the rows whose {column} is {value} or whose {number} is above {limit}",
          f"take what has {column} {value}, and also what has {number} over {limit}",
          f"drop the rows that have neither {column} {value} nor {number} above"
          f" {limit}",
      ),
      f'rows = [r for r in rows if r["{column}"] == "{value}"'
      f' or float(r["{number}"]) > {limit}]',
      table.where(lambda r: r[column] == value or r[number] > limit),
  )


@operation("rows", "date handling")
def since(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("date"))
  back = setting.rng.choice((30, 45, 60))
  if column is None:
    return None
  first = setting.today - datetime.timedelta(days=back)
  return Step(
      phrase(
          setting,
          f"keep only the rows with {column} on or after {first}",
          f"take the rows from {first} on, by {column}",
          f"leave out everything with a {column} before {first}",
      ),
      f'rows = [r for r in rows if r["{column}"] >= "{first}"]',
      table.where(lambda r: r[column] >= first),
  )


@operation("rows", "date handling")
def in_range(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("date"))
  back, length = setting.rng.randint(60, 100), setting.rng.randint(25, 55)
  if column is None:
    return None
  first = setting.today - datetime.timedelta(days=back)
  last = first + datetime.timedelta(days=length)
  return Step(
      phrase(
          setting,
          f"keep only the rows with {column} from {first} to {last}, both included",
          f"take the rows whose {column} is not before {first} and not after {last}",
          f"leave out every {column} before {first} or after {last}",
      ),
      f'rows = [r for r in rows if "{first}" <= r["{column}"] <= "{last}"]',
      table.where(lambda r: first <= r[column] <= last),
  )


@operation("rows", "date handling")
def in_month(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("date"))
  back = setting.rng.choice((40, 70, 100))
  if column is None:
    return None
  month = (setting.today - datetime.timedelta(days=back)).isoformat()[:7]
  return Step(
      phrase(
          setting,
          f"keep only the rows whose {column} is in the month {month}",
          f"take those of {month}, going by {column}",
          f"drop the rows with a {column} outside {month}",
      ),
      f'rows = [r for r in rows if r["{column}"].startswith("{month}")]',
      table.where(lambda r: r[column].isoformat().startswith(month)),
  )


@operation("rows", "date handling")
def weekends(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("date"))
  if column is None:
    return None
  return Step(
      phrase(
          setting,
          f"keep only the rows whose {column} falls on a Saturday or Sunday",
          f"take the weekend rows, going by {column}",
          f"leave out the rows with a {column} from Monday to Friday",
      ),
      "from datetime import date\n"
      f'rows = [r for r in rows if date.fromisoformat(r["{column}"]).weekday() > 4]',
      table.where(lambda r: r[column].weekday() > 4),
  )


@operation("rows", "ranking")
def top(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("money"))
  count = setting.rng.choice((3, 5, 8))
  if column is None:
    return None
  values = table.column(column)
  if len(set(values)) != len(values) or len(values) <= count:
    return None
  at = table.index(column)
  rows = sorted(table.rows, key=lambda r: r[at], reverse=True)[:count]
  return Step(
      phrase(
          setting,
          f"take the {count} rows with the highest {column}, highest first",
          f"keep the top {count} by {column}, the highest first",
          f"sort by {column} from high to low and keep the first {count}",
      ),
      f'rows = sorted(rows, key=lambda r: float(r["{column}"]),'
      f' reverse=True)[:{count}]',
      table.with_rows(rows),
      ordered=True,
  )


@operation("rows", "sorting")
def latest(setting: Setting, table: Table) -> Step | None:
  date, key = one(setting, table.of_type("date")), one(setting, table.of_type("id"))
  count = setting.rng.choice((4, 6, 9))
  if date is None or key is None or len(table.rows) <= count:
    return None
  at, of = table.index(date), table.index(key)
  rows = sorted(table.rows, key=lambda r: r[of])
  rows = sorted(rows, key=lambda r: r[at], reverse=True)[:count]
  return Step(
      phrase(
          setting,
          f"take the {count} latest rows by {date}, newest first, those of one day by"
          f" {key}",
          f"keep the newest {count} by {date}, latest first; within a day sort by"
          f" {key}",
          f"sort by {date} from new to old (same day: by {key} upwards) and keep the"
          f" first {count}",
      ),
      f'rows.sort(key=lambda r: r["{key}"])\n'
      f'rows = sorted(rows, key=lambda r: r["{date}"], reverse=True)[:{count}]',
      table.with_rows(rows),
      ordered=True,
  )


@operation("rows", "sorting")
def sort_by(setting: Setting, table: Table) -> Step | None:
  group = one(setting, table.of_type("category"))
  value = one(setting, table.of_type("money", "integer"))
  key = one(setting, table.of_type("id"))
  if group is None or value is None or key is None:
    return None
  a, b, c = map(table.index, (group, value, key))
  return Step(
      phrase(
          setting,
          f"sort by {group}, then by {value} from high to low, ties by {key}",
          f"put them in order of {group}; within one, the highest {value} first, and"
          f" equal ones by {key}",
          f"order the rows by {group} upwards, {value} downwards and {key} upwards",
      ),
      f'rows.sort(key=lambda r: (r["{group}"], -float(r["{value}"]), r["{key}"]))',
      table.with_rows(sorted(table.rows, key=lambda r: (r[a], -r[b], r[c]))),
      ordered=True,
      arranges=True,
  )
