"""A topic: the columns of a trade, and how its values are drawn.

The words that an instruction may name (statuses, regions, people) come from
the frame, and every one of them occurs in the records; all else from the data.

How a field is drawn, by type:
  id        a pattern in which #### is a number and ~ eight hex digits, both
            new in each row; a prefix alone stands for PREFIX-####
  category  "POOL COUNT": so many words of a pool of `data_gen.pools`; the pools
            `person` and `colleague` are people outside and inside the company
  date      "" is a day of the last 120, "after DAYS" up to so many days after
            the date before it in the row
  money     "LOW HIGH", two decimals
  integer   "LOW HIGH", and "percent" behind it where it is one
  text      "note THEME", "name", "email", "email of COLUMN", "phone", "time",
            "link"; `Column.form` is the first word
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any

from data_gen.compose.setting import Setting
from data_gen.compose.table import Column, Table
from data_gen.taxonomy import SCENARIO_OF, SCENARIOS

_DAYS = 120


@dataclass(frozen=True)
class Topic:
  """A kind of records.

  Attributes:
    subcategory: one of the taxonomy's; scenario and macro follow from it.
    stems: file names without suffix.
    fields: column name -> (type, how it is drawn); see the module's docstring.
  """

  name: str
  subcategory: str
  stems: tuple[str, ...]
  fields: dict[str, tuple[str, str]] = field(hash=False)

  @property
  def scenario(self) -> str:
    """One of the nine scenario categories."""
    return SCENARIO_OF[self.subcategory]

  @property
  def macro(self) -> str:
    """One of ClawGym-Bench's six."""
    return SCENARIOS[self.scenario].macro

  def draw(self, setting: Setting, rows: int) -> Table:
    """A table of `rows` records; each category value occurs at least once."""
    columns = tuple(
        _column(setting, name, kind, how) for name, (kind, how) in self.fields.items()
    )
    drawn = []
    for number in range(rows):
      row: dict[str, Any] = {}
      for column in columns:
        how = self.fields[column.name][1]
        row[column.name] = _value(setting, column, how, number, row)
      drawn.append(tuple(row.values()))
    setting.data.shuffle(drawn)
    return Table(columns, tuple(drawn))


def _column(setting: Setting, name: str, kind: str, how: str) -> Column:
  if kind in ("money", "integer"):
    low, high, *form = how.split()
    return Column(name, kind, low=int(low), high=int(high), form="".join(form))
  if kind == "text":
    return Column(name, kind, form=how.split()[0])
  if kind != "category":
    return Column(name, kind)
  pool, count = how.split()
  if pool == "person":
    return Column(name, kind, tuple(setting.person() for _ in range(int(count))))
  if pool == "colleague":
    return Column(name, kind, setting.colleagues[: int(count)])
  return Column(name, kind, tuple(setting.words(pool, int(count))))


def _value(
    setting: Setting, column: Column, how: str, number: int, row: dict[str, Any]
) -> object:
  """The value of row `number`, of which `row` has the columns before."""
  if column.type == "category":
    fresh = number < len(column.words)
    return column.words[number] if fresh else setting.pick(column.words)
  if column.type == "id":
    return _id(setting, how, number)
  if column.type == "date":
    if how:
      before = [v for v in row.values() if isinstance(v, datetime.date)][-1]
      return before + datetime.timedelta(days=setting.data.randint(1, int(how[6:])))
    return setting.day(setting.today - datetime.timedelta(days=_DAYS), _DAYS)
  if column.type == "money":
    return setting.money(column.low, column.high)
  if column.type == "integer":
    return setting.integer(column.low, column.high)
  return _TEXTS[column.form](setting, how, row)


def _id(setting: Setting, pattern: str, number: int) -> str:
  """A number of the setting's split, apart from those of all other rows."""
  within = (3, 7) if setting.heldout else (0, 1, 2, 4, 5, 6)
  value = setting.first_number + 8 * number + setting.data.choice(within)
  if "~" in pattern:  # a step that is odd keeps 32-bit numbers apart
    return pattern.replace("~", f"{value * 2654435761 % (1 << 32):08x}")
  return (pattern if "#" in pattern else f"{pattern}-####").replace("####", str(value))


def _name(setting: Setting, how: str, row: dict[str, Any]) -> str:
  return f"{setting.pool('first')} {setting.pool('last')}"


def _email(setting: Setting, how: str, row: dict[str, Any]) -> str:
  """A colleague's is that of the world; a stranger's names the stranger."""
  _, _, of = how.partition(" of ")
  who = row[of] if of else _name(setting, how, row)
  if who in setting.colleagues:
    return setting.email(who)
  return f"{who.lower().replace(' ', '.')}@{setting.pool('company').lower()}.example"


def _note(setting: Setting, how: str, row: dict[str, Any]) -> str:
  theme = how.split()[1]
  said = f"{setting.pool(f'note_{theme}')} {setting.pool(f'about_{theme}')}"
  return f"{said} {setting.integer(2, 99)}" if setting.data.random() < 0.3 else said


def _time(setting: Setting, how: str, row: dict[str, Any]) -> str:
  hour, minute = divmod(setting.integer(7 * 60, 20 * 60), 60)
  return f"{hour:02d}:{minute:02d}"


_TEXTS = {
    "name": _name,
    "email": _email,
    "note": _note,
    "time": _time,
    "phone": lambda s, how, row: f"+{s.integer(30, 79)} 555 {s.integer(1000, 9999)}",
    "link": lambda s, how, row: (
        f"https://{s.pool('company').lower()}.example/{s.integer(100, 9999)}"
    ),
}
