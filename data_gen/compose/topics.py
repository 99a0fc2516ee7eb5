"""What records are about: the columns of a trade, and how its values are drawn.

The words that an instruction may name (statuses, regions, people) come from
the frame, and every one of them occurs in the records; all else from the data.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field

from data_gen.compose.setting import Setting
from data_gen.compose.table import Column, Table

Draw = Callable[[Setting, int], object]


@dataclass(frozen=True)
class Topic:
  """A kind of records.

  Attributes:
    scenario: one of the nine scenario categories.
    macro: one of ClawGym-Bench's six.
    stems: file names without suffix.
    fields: column name -> (type, how it is drawn). A category names its pool of
      words and how many of them a task uses.
  """

  name: str
  scenario: str
  macro: str
  stems: tuple[str, ...]
  fields: dict[str, tuple[str, str]] = field(hash=False)

  def draw(self, setting: Setting, rows: int) -> Table:
    """A table of `rows` records; each category value occurs at least once."""
    columns = tuple(
        _column(setting, name, kind, how) for name, (kind, how) in self.fields.items()
    )
    first = setting.today - datetime.timedelta(days=120)
    drawn = []
    for number in range(rows):
      row = []
      for column in columns:
        if column.type == "category":
          fresh = number < len(column.words)
          row.append(column.words[number] if fresh else setting.pick(column.words))
        elif column.type == "id":
          prefix = self.fields[column.name][1]
          row.append(f"{prefix}-{1000 + 7 * number + setting.data.randrange(7)}")
        elif column.type == "date":
          row.append(setting.day(first, 120))
        elif column.type == "money":
          row.append(setting.money(column.low, column.high))
        elif column.type == "integer":
          row.append(setting.integer(column.low, column.high))
        else:
          row.append(f"{setting.pick(_TEXTS)} {setting.integer(2, 99)}")
      drawn.append(tuple(row))
    setting.data.shuffle(drawn)
    return Table(columns, tuple(drawn))


def _column(setting: Setting, name: str, kind: str, how: str) -> Column:
  if kind in ("money", "integer"):
    low, high = map(int, how.split())
    return Column(name, kind, low=low, high=high)
  if kind != "category":
    return Column(name, kind)
  pool, count = how.split()
  if pool == "person":
    return Column(name, kind, tuple(setting.person() for _ in range(int(count))))
  return Column(name, kind, tuple(setting.words(pool, int(count))))


_TEXTS = ("checked by", "see page", "box", "shelf", "call back in", "ask for desk", "row")

TOPICS = {
    topic.name: topic
    for topic in (
        Topic(
            "orders",
            "office and daily tasks",
            "Productivity & Collaboration",
            ("orders", "sales", "bookings", "shipments"),
            {
                "order_id": ("id", "ORD"),
                "date": ("date", ""),
                "client": ("category", "client 6"),
                "city": ("category", "city 4"),
                "status": ("category", "status 3"),
                "quantity": ("integer", "1 60"),
                "amount": ("money", "5 900"),
            },
        ),
    )
}
