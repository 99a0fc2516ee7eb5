"""One small fictional world per task: people, a company, dates, values.

Everything is drawn from one `random.Random`, so a world is the same for the
same seed, and from one side of every pool, so that train and heldout worlds
share no name, file stem or value: a number n belongs to heldout if and only
if n % 4 == 3, a date by its ordinal in the same way.
"""

from __future__ import annotations

import datetime
import random

from data_gen.pools import POOLS

_FIRST_DAY = datetime.date(2025, 9, 1).toordinal()
_LAST_DAY = datetime.date(2026, 8, 28).toordinal()


class World:
  """Draws without repetition: no word of a kind comes twice in one world."""

  def __init__(self, rng: random.Random, split: str):
    self.rng = rng
    self.heldout = split == "heldout"
    self._left: dict[str, list[str]] = {}
    self._numbers: set[int] = set()
    self.first = self.word("first")
    self.name = f"{self.first} {self.word('last')}"
    self.role = self.word("role")
    self.company = f"{self.word('company')} {self.word('trade')}"
    self.domain = self.company.lower().replace(" ", "-") + ".example"
    self.city = self.word("city")
    self.project = self.word("project")
    self.colleagues = tuple(self.person() for _ in range(4))
    self.today = self.date()

  def word(self, kind: str) -> str:
    """A word of `kind` that this world has not used yet."""
    if kind not in self._left:
      words = list(POOLS[kind][self.heldout])
      self.rng.shuffle(words)
      self._left[kind] = words
    return self._left[kind].pop()

  def words(self, kind: str, count: int) -> list[str]:
    return [self.word(kind) for _ in range(count)]

  def person(self) -> str:
    return f"{self.word('first')} {self.word('last')}"

  def number(self, low: int, high: int) -> int:
    """A number in [low, high] of this split, new in this world."""
    while True:
      value = self.rng.randint(low, high)
      if (value % 4 == 3) == self.heldout and value not in self._numbers:
        self._numbers.add(value)
        return value

  def amount(self, low: int, high: int) -> str:
    """Money such as 418.73; its cents are a number of this split."""
    value = self.number(low * 100, high * 100)
    return f"{value // 100}.{value % 100:02d}"

  def date(self) -> datetime.date:
    while True:
      day = self.rng.randint(_FIRST_DAY, _LAST_DAY)
      if (day % 4 == 3) == self.heldout:
        return datetime.date.fromordinal(day)

  def coin(self, chance: float = 0.5) -> bool:
    return self.rng.random() < chance

  def email(self, person: str) -> str:
    return f"{person.lower().replace(' ', '.')}@{self.domain}"

  def team_note(self) -> str:
    """A page that belongs to the world but to no task."""
    rows = "\n".join(f"- {p}, {self.email(p)}" for p in self.colleagues)
    return (
        f"# {self.company}, who is who\n\n{rows}\n\n"
        f"Office: {self.city}. Questions about {self.project} go to"
        f" {self.colleagues[0]}.\n"
    )

  def week_note(self) -> str:
    """Minutes that belong to the world but to no task."""
    first, second = self.colleagues[:2]
    return (
        f"# Week of {self.today.isoformat()}\n\n"
        f"{first} is in {self.city} until Thursday. {second} covers the phone.\n"
        f"{self.project}: on track, next look on Friday.\n"
    )
