"""Operations that need a second file, whose table is made from the source's.

The second table's column names tell `apply` what it is joined by.
"""

from __future__ import annotations

from collections import Counter
from decimal import ROUND_HALF_UP, Decimal

from data_gen.compose.operations.registry import (
    CENT,
    ROUNDED,
    Step,
    extended,
    one,
    operation,
    phrase,
)
from data_gen.compose.setting import Setting
from data_gen.compose.table import Column, Row, Table


def _per_word(
    setting: Setting, table: Table, column: Column, draw
) -> Table | None:
  """A table with one row for each value of a category that the frame chooses."""
  key = one(setting, table.of_type("category"))
  if key is None or column.name in table.names:
    return None
  words = list(table.named(key).words)
  setting.data.shuffle(words)
  rows = tuple((word, draw(word)) for word in words)
  return Table((table.named(key), column), rows)


def _looked_up(table: Table, other: Table) -> list | None:
  """For each row the second table's value; None where one is not there."""
  key = other.names[0]
  found = dict(other.rows)
  if key not in table.names or any(v not in found for v in table.column(key)):
    return None
  return [found[v] for v in table.column(key)]


def _prices(setting: Setting, table: Table) -> Table | None:
  price = Column("unit_price", "money", low=2, high=60)
  return _per_word(setting, table, price, lambda word: setting.money(2, 60))


@operation("rows", "joining", second=_prices, stem="price_list")
def cost(setting: Setting, table: Table, other: Table) -> Step | None:
  count = one(setting, table.of_type("integer"))
  prices = _looked_up(table, other)
  if count is None or prices is None:
    return None
  key = other.names[0]
  costs = [number * price for number, price in zip(table.column(count), prices)]
  whole = extended(table, Column("cost", "money"), costs)
  return whole and Step(
      phrase(
          setting,
          f"multiply {count} by the unit_price of the row's {key}, which is in"
          f" {{other}},"
          " into a new column cost",
          f"work out a column cost: {count} times the unit_price that {{other}} has for"
          f" the {key}",
          f"price every row by {{other}} (unit_price for each {key}) and add {count} x"
          " unit_price as cost",
      ),
      "from decimal import Decimal\n"
      f'price = {{r["{key}"]: Decimal(r["unit_price"]) for r in other}}\n'
      "for r in rows:\n"
      f'  r["cost"] = f\'{{int(r["{count}"]) * price[r["{key}"]]:.2f}}\'',
      whole,
  )


def _rates(setting: Setting, table: Table) -> Table | None:
  rate = Column("percent", "integer", low=1, high=40)
  return _per_word(setting, table, rate, lambda word: setting.integer(1, 40))


@operation("rows", "joining", second=_rates, stem="rates")
def fee(setting: Setting, table: Table, other: Table) -> Step | None:
  value, rates = one(setting, table.of_type("money")), _looked_up(table, other)
  if value is None or rates is None:
    return None
  key = other.names[0]
  fees = [
      (v * rate / 100).quantize(CENT, ROUND_HALF_UP)
      for v, rate in zip(table.column(value), rates)
  ]
  whole = extended(table, Column("fee", "money"), fees)
  return whole and Step(
      phrase(
          setting,
          f"add a column fee: {value} times the percent that {{other}} gives for the"
          f" {key}, divided by 100, halves up to two decimals",
          f"take from {{other}} each row's percent by {key} and put that share of"
          f" {value} into a column fee (two decimals, rounded half up)",
          f"work out a column fee, the percent of {{other}} for the row's {key} applied"
          f" to {value}, rounded half up to two decimals",
      ),
      "from decimal import Decimal, ROUND_HALF_UP\n"
      f'rate = {{r["{key}"]: int(r["percent"]) for r in other}}\n'
      "for r in rows:\n"
      f'  part = Decimal(r["{value}"]) * rate[r["{key}"]] / 100\n'
      f'  r["fee"] = str(part{ROUNDED})',
      whole,
  )


def _directory(setting: Setting, table: Table) -> Table | None:
  teams = tuple(setting.words("project", 3))
  fresh = iter(teams)
  team = Column("team", "category", teams)
  draw = lambda word: next(fresh, None) or setting.pick(teams)
  return _per_word(setting, table, team, draw)


@operation("rows", "joining", second=_directory, stem="directory")
def team(setting: Setting, table: Table, other: Table) -> Step | None:
  teams = _looked_up(table, other)
  if teams is None:
    return None
  key = other.names[0]
  whole = extended(table, other.columns[1], teams)
  return whole and Step(
      phrase(
          setting,
          f"add a column team with the team of the row's {key} from {{other}}",
          f"look up each {key} in {{other}} and put its team into a column team",
          f"give every row the team that {{other}} names for its {key}, as team",
      ),
      f'team = {{r["{key}"]: r["team"] for r in other}}\n'
      f'rows = [{{**r, "team": team[r["{key}"]]}} for r in rows]',
      whole,
  )


@operation("groups", "joining", second=_directory, stem="directory")
def total_by_team(setting: Setting, table: Table, other: Table) -> Step | None:
  value, teams = one(setting, table.of_type("money")), _looked_up(table, other)
  if value is None or teams is None or value == "team":
    return None
  key = other.names[0]
  sums: dict[str, Decimal] = {}
  for name, amount in zip(teams, table.column(value)):
    sums[name] = sums.get(name, Decimal(0)) + amount
  return Step(
      phrase(
          setting,
          f"add up {value} for each team, where {{other}} says which team a {key} is"
          " in, sorted by team",
          f"total {value} by team (the team of a {key} is in {{other}}), teams in"
          " alphabetical order",
          f"look up the team of each {key} in {{other}}, then sum {value} per team, in"
          " order of team",
      ),
      "from decimal import Decimal\n"
      f'team = {{r["{key}"]: r["team"] for r in other}}\n'
      "sums = {}\n"
      "for r in rows:\n"
      f'  name = team[r["{key}"]]\n'
      f'  sums[name] = sums.get(name, 0) + Decimal(r["{value}"])\n'
      f'rows = [{{"team": k, "{value}": f"{{v:.2f}}"}} for k, v in'
      ' sorted(sums.items())]',
      Table((other.columns[1], Column(value, "money")), tuple(sorted(sums.items()))),
      ordered=True,
  )


def _closed(setting: Setting, table: Table) -> Table | None:
  """About half of the ids, and some that the source does not have."""
  key = one(setting, table.of_type("id"))
  if key is None or "closed_on" in table.names:
    return None
  ids = sorted(set(table.column(key)))
  listed = [i for i in ids if setting.data.random() < 0.5]
  listed += [f"{i}9" for i in setting.data.sample(ids, min(4, len(ids)))]
  setting.data.shuffle(listed)
  rows = tuple((i, setting.day(setting.today, 20)) for i in listed)
  return Table((table.named(key), Column("closed_on", "date")), rows)


@operation("rows", "reconciliation", second=_closed, stem="closed")
def drop_listed(setting: Setting, table: Table, other: Table) -> Step | None:
  key = other.names[0]
  if key not in table.names:
    return None
  listed = set(other.column(key))
  return Step(
      phrase(
          setting,
          f"leave out every row whose {key} is listed in {{other}}",
          f"drop what {{other}} lists, by {key}",
          f"keep only the rows with a {key} that {{other}} does not have",
      ),
      f'listed = {{r["{key}"] for r in other}}\n'
      f'rows = [r for r in rows if r["{key}"] not in listed]',
      table.where(lambda r: r[key] not in listed),
  )


@operation("rows", "reconciliation", second=_closed, stem="closed")
def closed_on(setting: Setting, table: Table, other: Table) -> Step | None:
  key = other.names[0]
  if key not in table.names:
    return None
  listed = dict(other.rows)
  at = table.index(key)
  kept = table.where(lambda r: r[key] in listed)
  whole = extended(kept, other.columns[1], (listed[row[at]] for row in kept.rows))
  return whole and Step(
      phrase(
          setting,
          f"keep only the rows whose {key} is listed in {{other}}, with its closed_on"
          " as a further column",
          f"join with {{other}} by {key}: only rows that are in both, closed_on as the"
          " last column",
          f"take the rows that {{other}} lists by {key} and add the closed_on from"
          " there",
      ),
      f'listed = {{r["{key}"]: r["closed_on"] for r in other}}\n'
      f'rows = [{{**r, "closed_on": listed[r["{key}"]]}}'
      f' for r in rows if r["{key}"] in listed]',
      whole,
  )


def _ledger(setting: Setting, table: Table) -> Table | None:
  """The first amount of most ids, a third of them otherwise, and some strangers."""
  keys, amounts = table.of_type("id"), table.of_type("money")
  if not keys or not amounts or "booked" in table.names:
    return None
  rows: list[Row] = []
  for key, amount in zip(table.column(keys[0]), table.column(amounts[0])):
    chance = setting.data.random()
    if chance < 0.35:
      rows.append((key, amount + setting.integer(1, 30)))
    elif chance < 0.85:
      rows.append((key, amount))
  strangers = [f"{key}9" for key in table.column(keys[0])[:3]]
  rows += [(key, setting.money(5, 400)) for key in strangers]
  setting.data.shuffle(rows)
  return Table((table.named(keys[0]), Column("booked", "money")), tuple(rows))


def _unique(table: Table, other: Table) -> tuple[str, str] | None:
  """The id and the amount that a ledger is compared by, if ids are unique."""
  keys, amounts = table.of_type("id"), table.of_type("money")
  if not keys or not amounts or keys[0] != other.names[0]:
    return None
  if len(set(table.column(keys[0]))) != len(table.rows):
    return None
  return keys[0], amounts[0]


@operation("groups", "reconciliation", second=_ledger, stem="ledger")
def differing(setting: Setting, table: Table, other: Table) -> Step | None:
  names = _unique(table, other)
  if names is None:
    return None
  key, value = names
  booked = dict(other.rows)
  found = sorted(
      (k, v, booked[k])
      for k, v in zip(table.column(key), table.column(value))
      if k in booked and booked[k] != v
  )
  return Step(
      phrase(
          setting,
          f"compare with {{other}}: where a {key} is in both and booked is not {value},"
          f" list {key}, {value} and booked, sorted by {key}",
          f"find each {key} whose {value} differs from its booked in {{other}}; give"
          f" {key}, {value}, booked in order of {key}; what is in one file only does"
          " not count",
          f"check {value} against booked of {{other}} by {key} and list the rows in"
          f" both that do not agree ({key}, {value}, booked), by {key}",
      ),
      f'booked = {{r["{key}"]: r["booked"] for r in other}}\n'
      f'rows = [{{"{key}": r["{key}"], "{value}": r["{value}"],'
      f' "booked": booked[r["{key}"]]}}'
      f' for r in sorted(rows, key=lambda r: r["{key}"]) if r["{key}"] in booked'
      f' and float(booked[r["{key}"]]) != float(r["{value}"])]',
      Table(
          (table.named(key), Column(value, "money"), other.columns[1]), tuple(found)
      ),
      ordered=True,
  )


@operation("groups", "reconciliation", second=_ledger, stem="ledger")
def reconcile(setting: Setting, table: Table, other: Table) -> Step | None:
  names = _unique(table, other)
  if names is None or names[0] == "finding":
    return None
  key, value = names
  ours, booked = dict(zip(table.column(key), table.column(value))), dict(other.rows)
  found = []
  for k in sorted({*ours, *booked}):
    if k not in booked:
      found.append((k, "not booked"))
    elif k not in ours:
      found.append((k, "unknown"))
    elif ours[k] != booked[k]:
      found.append((k, "differs"))
  return Step(
      phrase(
          setting,
          f"reconcile with {{other}} by {key}: list {key} and finding, sorted by {key},"
          ' where finding is "not booked" (missing there), "unknown" (only there) or'
          f' "differs" (booked is not {value}); what agrees is left out',
          f"hold the rows against {{other}} and report {key} and finding in order of"
          f' {key}: "differs" where {value} and booked are not equal, "not booked" if'
          f' {{other}} lacks the {key}, "unknown" if only {{other}} has it; nothing for'
          " those that agree",
          f"make a list of disagreements with {{other}} (columns {key} and finding, by"
          f' {key}): "not booked" for a {key} that it lacks, "unknown" for one that'
          f' only it has, "differs" where booked is another number than {value}',
      ),
      f'ours = {{r["{key}"]: float(r["{value}"]) for r in rows}}\n'
      f'booked = {{r["{key}"]: float(r["booked"]) for r in other}}\n'
      "rows = []\n"
      "for k in sorted({*ours, *booked}):\n"
      '  finding = "not booked" if k not in booked else "unknown" if k not in ours'
      ' else "differs" if ours[k] != booked[k] else ""\n'
      "  if finding:\n"
      f'    rows.append({{"{key}": k, "finding": finding}})',
      Table((table.named(key), Column("finding", "text")), tuple(found)),
      ordered=True,
  )


def _last_month(setting: Setting, table: Table) -> Table | None:
  """As many rows again, the columns' values dealt anew, with ids of their own."""
  ids = table.of_type("id")
  if not ids:
    return None
  columns = []
  for name in table.names:
    values = list(table.column(name))
    if name == ids[0]:
      columns.append([f"{v}0" for v in values])
    else:
      setting.data.shuffle(values)
      columns.append(values)
  rows = list(zip(*columns))
  return table.with_rows(rows[: setting.data.randint(len(rows) * 2 // 3, len(rows))])


@operation("rows", "concatenation", second=_last_month, stem="last_month")
def append(setting: Setting, table: Table, other: Table) -> Step | None:
  ids = table.of_type("id")
  if table.columns != other.columns or not ids:
    return None
  key, at = ids[0], table.index(ids[0])
  rows = sorted([*table.rows, *other.rows], key=lambda r: r[at])
  return Step(
      phrase(
          setting,
          f"put the rows of {{other}} to them and sort all by {key}",
          f"merge with {{other}}, which has the same columns, in order of {key}",
          f"append what {{other}} has and sort the whole by {key}",
      ),
      f'rows = sorted(rows + other, key=lambda r: r["{key}"])',
      table.with_rows(rows),
      ordered=True,
  )


def _budgets(setting: Setting, table: Table) -> Table | None:
  """For each value of the first category a budget near what it has."""
  names, amounts = table.of_type("category"), table.of_type("money")
  if not names or not amounts or "budget" in table.names:
    return None
  totals = Counter()
  for key, amount in zip(table.column(names[0]), table.column(amounts[0])):
    totals[key] += amount
  rows = [
      (word, Decimal(int(totals[word]) * setting.integer(60, 130) // 100 + 1))
      for word in table.named(names[0]).words
  ]
  setting.data.shuffle(rows)
  return Table((table.named(names[0]), Column("budget", "money")), tuple(rows))


@operation("groups", "validation", second=_budgets, stem="budget")
def over_budget(setting: Setting, table: Table, other: Table) -> Step | None:
  amounts, key = table.of_type("money"), other.names[0]
  if not amounts or _looked_up(table, other) is None:
    return None
  value, budget = amounts[0], dict(other.rows)
  totals = Counter()
  for k, amount in zip(table.column(key), table.column(value)):
    totals[k] += amount
  found = [(k, v, budget[k]) for k, v in sorted(totals.items()) if v > budget[k]]
  return Step(
      phrase(
          setting,
          f"add up {value} for each {key} and list those above their budget in"
          f" {{other}} as {key}, {value}, budget, sorted by {key}",
          f"find which {key} has more {value} in total than {{other}} allows: columns"
          f" {key}, {value} (the total) and budget, in order of {key}",
          f"total {value} by {key}, compare with the budget in {{other}} and keep what"
          f" is over it: {key}, {value}, budget, by {key}",
      ),
      "from decimal import Decimal\n"
      f'budget = {{r["{key}"]: r["budget"] for r in other}}\n'
      "sums = {}\n"
      "for r in rows:\n"
      f'  sums[r["{key}"]] = sums.get(r["{key}"], 0) + Decimal(r["{value}"])\n'
      f'rows = [{{"{key}": k, "{value}": f"{{v:.2f}}", "budget": budget[k]}}'
      " for k, v in sorted(sums.items()) if v > Decimal(budget[k])]",
      Table((table.named(key), Column(value, "money"), other.columns[1]), tuple(found)),
      ordered=True,
  )


@operation("groups", "joining", second=_budgets, stem="budget")
def budget_left(setting: Setting, table: Table, other: Table) -> Step | None:
  amounts, key = table.of_type("money"), other.names[0]
  if not amounts or _looked_up(table, other) is None or key == "left":
    return None
  value, spent = amounts[0], Counter()
  for k, amount in zip(table.column(key), table.column(value)):
    spent[k] += amount
  left = tuple(sorted((k, b - Decimal(spent[k])) for k, b in other.rows))
  return Step(
      phrase(
          setting,
          f"say for each {key} of {{other}} what is left of its budget after all its"
          f" {value} (column left, negative where overspent), sorted by {key}",
          f"take the summed {value} of every {key} off its budget in {{other}} and list"
          f" {key} and left, by {key}; left is below 0 where there is too little",
          f"work out left, the budget in {{other}} less the total {value}, for every"
          f" {key} there, in order of {key}",
      ),
      "from decimal import Decimal\n"
      f'left = {{r["{key}"]: Decimal(r["budget"]) for r in other}}\n'
      "for r in rows:\n"
      f'  left[r["{key}"]] -= Decimal(r["{value}"])\n'
      f'rows = [{{"{key}": k, "left": f"{{v:.2f}}"}} for k, v in sorted(left.items())]',
      Table((table.named(key), Column("left", "money")), left),
      ordered=True,
  )
