"""Operations that add a column, or change which columns there are."""

from __future__ import annotations

import dataclasses
import datetime
from decimal import ROUND_HALF_UP, Decimal

from data_gen.compose.operations.registry import (
    CENT,
    DAYS,
    ROUNDED,
    Step,
    bounded,
    extended,
    one,
    operation,
    phrase,
)
from data_gen.compose.setting import Setting
from data_gen.compose.table import Column, Table


def _step(said: str, code: str, table: Table | None, ordered: bool = False):
  return None if table is None else Step(said, code, table, ordered)


@operation("rows", "ranking")
def rank(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("money"))
  if column is None or len(set(table.column(column))) != len(table.rows):
    return None
  at = table.index(column)
  rows = sorted(table.rows, key=lambda r: r[at], reverse=True)
  return _step(
      phrase(
          setting,
          f"sort by {column} from high to low and add a column rank, counting from 1",
          f"rank the rows by {column}: highest first, with their place (1, 2, …) in a"
          " last column rank",
          f"put the highest {column} first and number the rows from 1 in a column rank",
      ),
      f'rows.sort(key=lambda r: float(r["{column}"]), reverse=True)\n'
      'rows = [{**r, "rank": str(n)} for n, r in enumerate(rows, 1)]',
      extended(
          table.with_rows(rows), Column("rank", "integer"), range(1, len(rows) + 1)
      ),
      ordered=True,
  )


@operation("rows", "share and trend")
def share(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("money", "integer"))
  if column is None or not sum(table.column(column)):
    return None
  total = sum(table.column(column))
  shares = [
      (Decimal(v) * 100 / total).quantize(CENT, ROUND_HALF_UP)
      for v in table.column(column)
  ]
  return _step(
      phrase(
          setting,
          f"add a column share: {column} as percent of all {column} together, two"
          " decimals, halves up",
          f"give every row its share of the total {column} in percent (column share,"
          " rounded half up to two decimals)",
          f"work out in a new column share how many percent of the summed {column} each"
          " row has, halves rounded up, two decimals",
      ),
      "from decimal import Decimal, ROUND_HALF_UP\n"
      f'total = sum(Decimal(r["{column}"]) for r in rows)\n'
      "for r in rows:\n"
      f'  part = Decimal(r["{column}"]) * 100 / total\n'
      f'  r["share"] = str(part{ROUNDED})',
      extended(table, Column("share", "money"), shares),
  )


@operation("rows", "share and trend")
def running_total(setting: Setting, table: Table) -> Step | None:
  date, key = one(setting, table.of_type("date")), one(setting, table.of_type("id"))
  column = one(setting, table.of_type("money"))
  if date is None or key is None or column is None:
    return None
  a, b = table.index(date), table.index(key)
  ordered = table.with_rows(sorted(table.rows, key=lambda r: (r[a], r[b])))
  sums, total = [], Decimal(0)
  for value in ordered.column(column):
    total += value
    sums.append(total)
  return _step(
      phrase(
          setting,
          f"sort by {date} and {key}, and add a column running_total of {column}",
          f"in order of {date}, then {key}, sum {column} up row by row into a column"
          " running_total",
          f"order the rows by {date} (same day: {key}) and give each the total of"
          f" {column} so far as running_total",
      ),
      "from decimal import Decimal\n"
      f'rows.sort(key=lambda r: (r["{date}"], r["{key}"]))\n'
      "total = Decimal(0)\n"
      "for r in rows:\n"
      f'  total += Decimal(r["{column}"])\n'
      '  r["running_total"] = f"{total:.2f}"',
      extended(ordered, Column("running_total", "money"), sums),
      ordered=True,
  )


@operation("rows", "bucketing")
def bucket(setting: Setting, table: Table) -> Step | None:
  column = one(setting, bounded(table))
  if column is None:
    return None
  low, high = table.named(column).low, table.named(column).high
  first = setting.rng.randint((4 * low + high) // 5, (2 * low + high) // 3)
  last = setting.rng.randint((low + 2 * high) // 3, (low + 4 * high) // 5)
  names = setting.rng.choice(
      (("low", "medium", "high"), ("small", "middle", "large"), ("C", "B", "A"))
  )
  if first >= last:
    return None
  kind = lambda v: names[0] if v < first else names[2] if v > last else names[1]
  return _step(
      phrase(
          setting,
          f"add a column class: {names[0]} for {column} below {first}, {names[2]} above"
          f" {last}, {names[1]} for the rest",
          f"classify by {column} in a column class: under {first} is {names[0]}, over"
          f" {last} is {names[2]}, all between is {names[1]}",
          f"label each row in a new column class ({names[0]}: {column} under {first};"
          f" {names[2]}: over {last}; else {names[1]})",
      ),
      "for r in rows:\n"
      f'  v = float(r["{column}"])\n'
      f'  r["class"] = "{names[0]}" if v < {first} else'
      f' "{names[2]}" if v > {last} else "{names[1]}"',
      extended(
          table, Column("class", "category", names), map(kind, table.column(column))
      ),
  )


@operation("rows", "text extraction")
def number_of_id(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("id"))
  if column is None:
    return None
  digits = ["".join(c for c in v if c in "0123456789") for v in table.column(column)]
  if "" in digits:
    return None
  return _step(
      phrase(
          setting,
          f"add a column number with only the digits of {column}",
          f"take the digits out of {column} into a new column number",
          f"copy what {column} has of digits, and nothing else, to a column number",
      ),
      "import re\n"
      "for r in rows:\n"
      f'  r["number"] = "".join(re.findall("[0-9]", r["{column}"]))',
      extended(table, Column("number", "text"), digits),
  )


@operation("rows", "text extraction")
def prefix_of_id(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("id"))
  other = one(setting, table.of_type("category"))
  if column is None or other is None:
    return None
  values = [
      f"{v[-3:]}-{w[:3].upper()}"
      for v, w in zip(table.column(column), table.column(other))
  ]
  return _step(
      phrase(
          setting,
          f"add a column code: the last 3 characters of {column}, a hyphen, the first 3"
          f" of {other} in capitals",
          f"make a column code from the last 3 characters of {column} and the first 3"
          f" of {other} in upper case, with - between",
          f"give each row a code, the end of {column} (3 characters), then -, then the"
          f" start of {other} (3 characters, upper case)",
      ),
      "for r in rows:\n"
      f'  r["code"] = r["{column}"][-3:] + "-" + r["{other}"][:3].upper()',
      extended(table, Column("code", "text"), values),
  )


@operation("rows", "column editing")
def label(setting: Setting, table: Table) -> Step | None:
  names = table.of_type("category")
  if len(names) < 2:
    return None
  first, second = setting.rng.sample(names, 2)
  sign = setting.rng.choice(("/", "+", ":"))
  values = [f"{a}{sign}{b}" for a, b in zip(table.column(first), table.column(second))]
  return _step(
      phrase(
          setting,
          f"add a column label made of {first}, {sign} and {second} without blanks"
          " around the sign",
          f"join {first} and {second} with {sign} in a new column label",
          f"put {first}{sign}{second} of each row into a column label",
      ),
      f'for r in rows:\n  r["label"] = r["{first}"] + "{sign}" + r["{second}"]',
      extended(table, Column("label", "text"), values),
  )


@operation("rows", "column editing")
def select(setting: Setting, table: Table) -> Step | None:
  if len(table.columns) < 4:
    return None
  names = setting.rng.sample(table.names, setting.rng.choice((3, len(table.names) - 1)))
  at = [table.index(name) for name in names]
  said = ", ".join(names)
  return Step(
      phrase(
          setting,
          f"keep only the columns {said}, in this order",
          f"reduce it to {said} (the columns in exactly this order)",
          f"drop all columns but these and arrange them so: {said}",
      ),
      f"names = {names!r}\nrows = [{{n: r[n] for n in names}} for r in rows]",
      Table(
          tuple(table.columns[i] for i in at),
          tuple(tuple(row[i] for i in at) for row in table.rows),
      ),
  )


@operation("rows", "column editing")
def rename(setting: Setting, table: Table) -> Step | None:
  old = one(setting, table.of_type("money", "integer", "category"))
  new = setting.word("topic")
  if old is None or new in table.names:
    return None
  columns = tuple(
      dataclasses.replace(c, name=new) if c.name == old else c
      for c in table.columns
  )
  return Step(
      phrase(
          setting,
          f"rename the column {old} to {new}",
          f"call the column {old} {new} from here on, where it stands",
          f"change the name of {old} to {new}",
      ),
      f'rows = [{{"{new}" if k == "{old}" else k: v for k, v in r.items()}}'
      " for r in rows]",
      Table(columns, table.rows),
  )


@operation("rows", "date handling")
def days_since(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("date"))
  if column is None:
    return None
  days = [(setting.today - value).days for value in table.column(column)]
  return _step(
      phrase(
          setting,
          f"add a column days: how many days {column} is before {setting.today}",
          f"count the days from {column} to {setting.today} into a column days",
          f"give each row its age on {setting.today} in days since {column}, as days",
      ),
      "from datetime import date\n"
      f'today = date.fromisoformat("{setting.today}")\n'
      "for r in rows:\n"
      f'  r["days"] = str((today - date.fromisoformat(r["{column}"])).days)',
      extended(table, Column("days", "integer"), days),
  )


@operation("rows", "date handling")
def due_date(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("date"))
  days = setting.number(9, 95)
  if column is None:
    return None
  later = datetime.timedelta(days=days)
  return _step(
      phrase(
          setting,
          f"add a column due, {days} days after {column}",
          f"work out a due date {days} days later than {column} in a new column due",
          f"put {column} plus {days} days into a column due",
      ),
      "from datetime import date, timedelta\n"
      "for r in rows:\n"
      f'  r["due"] = str(date.fromisoformat(r["{column}"]) + timedelta({days}))',
      extended(table, Column("due", "date"), [d + later for d in table.column(column)]),
  )


@operation("rows", "date handling")
def weekday(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("date"))
  if column is None:
    return None
  return _step(
      phrase(
          setting,
          f"add a column weekday with the English name of the day of {column}",
          f"write the weekday of {column} (Monday, Tuesday, …) into a column weekday",
          f"say in a new column weekday on which day of the week {column} falls, in"
          " English",
      ),
      "from datetime import date\n"
      'names = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()\n'
      "for r in rows:\n"
      f'  r["weekday"] = names[date.fromisoformat(r["{column}"]).weekday()]',
      extended(
          table,
          Column("weekday", "text"),
          [DAYS[d.weekday()] for d in table.column(column)],
      ),
  )


@operation("rows", "normalisation")
def date_format(setting: Setting, table: Table) -> Step | None:
  column = one(setting, table.of_type("date"))
  said, form = setting.rng.choice(
      (("DD.MM.YYYY", "%d.%m.%Y"), ("DD/MM/YYYY", "%d/%m/%Y"), ("YYYYMMDD", "%Y%m%d"))
  )
  if column is None:
    return None
  at = table.index(column)
  rows = [
      (*r[:at], f"{r[at]:{form}}", *r[at + 1 :]) for r in table.rows
  ]
  columns = tuple(
      Column(column, "text") if c.name == column else c for c in table.columns
  )
  return Step(
      phrase(
          setting,
          f"write {column} as {said}",
          f"change every {column} to the form {said}",
          f"bring {column} into the date form {said}",
      ),
      "from datetime import date\n"
      "for r in rows:\n"
      f'  r["{column}"] = date.fromisoformat(r["{column}"]).strftime("{form}")',
      Table(columns, tuple(rows)),
  )


@operation("rows", "column editing")
def reduced(setting: Setting, table: Table) -> Step | None:
  column, percent = one(setting, table.of_type("money")), setting.number(4, 45)
  if column is None:
    return None
  values = [
      (v * (100 - percent) / 100).quantize(CENT, ROUND_HALF_UP)
      for v in table.column(column)
  ]
  return _step(
      phrase(
          setting,
          f"add a column reduced: {column} less {percent} percent, halves up to two"
          " decimals",
          f"take {percent} percent off {column} in a new column reduced (two decimals,"
          " rounded half up)",
          f"put {column} with a discount of {percent} percent, rounded half up to two"
          " decimals, into a column reduced",
      ),
      "from decimal import Decimal, ROUND_HALF_UP\n"
      "for r in rows:\n"
      f'  left = Decimal(r["{column}"]) * (100 - {percent}) / 100\n'
      f'  r["reduced"] = str(left{ROUNDED})',
      extended(table, Column("reduced", "money"), values),
  )
