"""Operations that mend what a source has been given for them to mend.

`prepare` makes the untidiness, so these come first in a chain. What of it the
operation must know it finds in the table's columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from collections import Counter
from decimal import Decimal

from data_gen.compose.operations.registry import Step, one, operation, phrase
from data_gen.compose.setting import Setting
from data_gen.compose.table import Column, Row, Table

GAP = "n/a"
_GAPS = 0.45  # of the rows; enough that the untouched source is not nearly right
_COPIES = 0.6
_CLASHES = 0.35


def _gaps(setting: Setting, table: Table) -> Table | None:
  """One category has no value in many rows; never in the first."""
  column = one(setting, table.of_type("category"))
  if column is None:
    return None
  at = table.index(column)
  rows = [
      (*r[:at], GAP, *r[at + 1 :]) if n and setting.data.random() < _GAPS else r
      for n, r in enumerate(table.rows)
  ]
  old = table.columns[at]
  gappy = dataclasses.replace(old, words=(*old.words, GAP))
  return Table((*table.columns[:at], gappy, *table.columns[at + 1 :]), tuple(rows))


def _with_gaps(table: Table) -> str | None:
  return next((c.name for c in table.columns if GAP in c.words), None)


def _filled(table: Table, column: str, extra: tuple[str, ...], rows: list) -> Table:
  old = table.named(column)
  words = tuple(w for w in old.words if w != GAP) + extra
  columns = tuple(
      dataclasses.replace(c, words=words) if c.name == column else c
      for c in table.columns
  )
  return Table(columns, tuple(rows))


@operation("rows", "missing values", prepare=_gaps)
def drop_missing(setting: Setting, table: Table) -> Step | None:
  column = _with_gaps(table)
  if column is None:
    return None
  at = table.index(column)
  return Step(
      phrase(
          setting,
          f"leave out the rows whose {column} is missing ({GAP})",
          f"drop every row with {GAP} as {column}",
          f"keep only the rows that have a {column}; {GAP} means that there is none",
      ),
      f'rows = [r for r in rows if r["{column}"] != "{GAP}"]',
      _filled(table, column, (), [r for r in table.rows if r[at] != GAP]),
  )


@operation("rows", "missing values", prepare=_gaps)
def fill_down(setting: Setting, table: Table) -> Step | None:
  column = _with_gaps(table)
  if column is None:
    return None
  at = table.index(column)
  rows: list[Row] = []
  for row in table.rows:
    value = row[at] if row[at] != GAP else rows[-1][at]
    rows.append((*row[:at], value, *row[at + 1 :]))
  return Step(
      phrase(
          setting,
          f"fill every missing {column} ({GAP}) with that of the row above it",
          f"where {column} is {GAP}, the value of the row before it is meant: write it"
          " there",
          f"replace {GAP} in {column} by the last value above it",
      ),
      "for before, r in zip(rows, rows[1:]):\n"
      f'  if r["{column}"] == "{GAP}":\n'
      f'    r["{column}"] = before["{column}"]',
      _filled(table, column, (), rows),
  )


@operation("rows", "missing values", prepare=_gaps)
def fill_value(setting: Setting, table: Table) -> Step | None:
  column = _with_gaps(table)
  word = setting.word("topic")
  if column is None:
    return None
  at = table.index(column)
  rows = [
      (*r[:at], word, *r[at + 1 :]) if r[at] == GAP else r for r in table.rows
  ]
  return Step(
      phrase(
          setting,
          f"write {word} wherever {column} is missing ({GAP})",
          f"replace {GAP} in {column} by {word}",
          f"fill the gaps of {column}, marked {GAP}, with {word}",
      ),
      "for r in rows:\n"
      f'  if r["{column}"] == "{GAP}":\n'
      f'    r["{column}"] = "{word}"',
      _filled(table, column, (word,), rows),
  )


def _copies(setting: Setting, table: Table) -> Table | None:
  """Many ids come again, on another day and with another amount."""
  ids, dates = table.of_type("id"), table.of_type("date")
  if not ids or not dates:
    return None
  at, amounts = table.index(dates[0]), table.of_type("money")
  days = sorted(set(table.column(dates[0])))
  rows = list(table.rows)
  for row in table.rows:
    if setting.data.random() < _COPIES and len(days) > 1:
      again = list(row)
      again[at] = setting.pick([d for d in days if d != row[at]])
      for name in amounts:
        again[table.index(name)] += Decimal(setting.integer(1, 40))
      rows.append(tuple(again))
  setting.data.shuffle(rows)
  return table.with_rows(rows)


@operation("rows", "deduplication", prepare=_copies)
def newest_of_each(setting: Setting, table: Table) -> Step | None:
  ids, dates = table.of_type("id"), table.of_type("date")
  if not ids or not dates:
    return None
  key, date = ids[0], dates[0]
  at, of = table.index(key), table.index(date)
  best = {row[at]: row for row in sorted(table.rows, key=lambda r: r[of])}
  if len({(row[at], row[of]) for row in table.rows}) != len(table.rows):
    return None
  return Step(
      phrase(
          setting,
          f"{key} comes more than once: keep for each only the row with the latest"
          f" {date}, sorted by {key}",
          f"remove outdated rows, so that of each {key} only the one with the newest"
          f" {date} stays, in order of {key}",
          f"deduplicate by {key}: the row with the latest {date} wins; sort by {key}",
      ),
      "best = {}\n"
      f'for r in sorted(rows, key=lambda r: r["{date}"]):\n'
      f'  best[r["{key}"]] = r\n'
      "rows = [best[k] for k in sorted(best)]",
      table.with_rows(best[k] for k in sorted(best)),
      ordered=True,
  )


@operation("groups", "deduplication", prepare=_copies)
def repeated(setting: Setting, table: Table) -> Step | None:
  ids = table.of_type("id")
  if not ids or ids[0] == "times":
    return None
  key = ids[0]
  counts = {k: n for k, n in sorted(Counter(table.column(key)).items()) if n > 1}
  return Step(
      phrase(
          setting,
          f"list every {key} that comes more than once, with how often as times, sorted"
          f" by {key}",
          f"find the duplicates: each repeated {key} and its number of rows (times), in"
          f" order of {key}",
          f"report which {key} is there twice or more, in the columns {key} and times,"
          f" by {key}",
      ),
      "from collections import Counter\n"
      f'counts = Counter(r["{key}"] for r in rows)\n'
      f'rows = [{{"{key}": k, "times": str(n)}}'
      " for k, n in sorted(counts.items()) if n > 1]",
      Table((table.named(key), Column("times", "integer")), tuple(counts.items())),
      ordered=True,
  )


def _mixed_case(setting: Setting, table: Table) -> Table | None:
  """A category's values are written in capitals, or small, or both."""
  names = table.of_type("category")
  if not names:
    return None
  at = table.index(names[0])
  words = table.columns[at].words
  if len({w.lower() for w in words}) != len(words):
    return None
  if any(w.upper().lower() != w.lower() for w in words):
    return None
  forms = (str.upper, str.lower, str.title, str.swapcase)
  rows = [
      (*r[:at], setting.data.choice(forms)(r[at]), *r[at + 1 :]) for r in table.rows
  ]
  return table.with_rows(rows)


def _cased(table: Table, method: str, wording: Callable[[str], str]) -> Step | None:
  """The first category in one case: `method` is that of str which makes it."""
  names = table.of_type("category")
  if not names:
    return None
  column = names[0]
  at = table.index(column)
  old, case = table.columns[at], getattr(str, method)
  new = dataclasses.replace(old, words=tuple(map(case, old.words)))
  rows = tuple((*r[:at], case(r[at]), *r[at + 1 :]) for r in table.rows)
  return Step(
      wording(column),
      f'for r in rows:\n  r["{column}"] = r["{column}"].{method}()',
      Table((*table.columns[:at], new, *table.columns[at + 1 :]), rows),
  )


@operation("rows", "normalisation", prepare=_mixed_case)
def lower_case(setting: Setting, table: Table) -> Step | None:
  return _cased(
      table,
      "lower",
      lambda column: phrase(
          setting,
          f"write every {column} in lower case",
          f"make {column} uniform: small letters only",
          f"{column} is written in capitals here and small there; turn it all into"
          " small letters",
      ),
  )


@operation("rows", "normalisation", prepare=_mixed_case)
def upper_case(setting: Setting, table: Table) -> Step | None:
  return _cased(
      table,
      "upper",
      lambda column: phrase(
          setting,
          f"write every {column} in capitals",
          f"make {column} uniform: upper case throughout",
          f"{column} is written in many ways; put it all in upper case",
      ),
  )


def _clashes(setting: Setting, table: Table) -> Table | None:
  """Many rows have the day and the category of another."""
  names, dates = table.of_type("category"), table.of_type("date")
  if not names or not dates or len(table.rows) < 4:
    return None
  at, of = table.index(names[0]), table.index(dates[0])
  rows = [list(row) for row in table.rows]
  for _ in range(int(_CLASHES * len(rows))):
    first, second = setting.data.sample(range(len(rows)), 2)
    rows[second][at], rows[second][of] = rows[first][at], rows[first][of]
  return table.with_rows(map(tuple, rows))


@operation("groups", "schedule conflicts", prepare=_clashes)
def conflicts(setting: Setting, table: Table) -> Step | None:
  names, dates = table.of_type("category"), table.of_type("date")
  if not names or not dates:
    return None
  who, date = names[0], dates[0]
  if "entries" in (who, date):
    return None
  counts = Counter(zip(table.column(date), table.column(who)))
  found = [(w, d, n) for (d, w), n in sorted(counts.items()) if n > 1]
  return Step(
      phrase(
          setting,
          f"find the conflicts: every {who} with two or more rows on one {date}; give"
          f" {who}, {date} and the number of rows as entries, by {date}, then {who}",
          f"list each {who} that is double-booked on a {date}, with {date} and how many"
          f" rows (entries), sorted by {date} and {who}",
          f"report where one {who} has several rows on the same {date}: columns {who},"
          f" {date}, entries (how many), in order of {date}, then {who}",
      ),
      "from collections import Counter\n"
      f'counts = Counter((r["{date}"], r["{who}"]) for r in rows)\n'
      f'rows = [{{"{who}": w, "{date}": d, "entries": str(n)}}'
      " for (d, w), n in sorted(counts.items()) if n > 1]",
      Table(
          (table.named(who), table.named(date), Column("entries", "integer")),
          tuple(found),
      ),
      ordered=True,
  )
