"""The world of a composed task, in two halves: what is asked, and what is there.

`frame` draws all that the instruction names (people, files, columns, limits);
`data` draws the records. `reseeded` has the same frame and other records, so
that a solution which knew the records is found out.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from decimal import Decimal

from data_gen.pools import POOLS
from data_gen.world import World

_FACTS = (
    "first", "name", "role", "company", "domain", "city", "project", "colleagues",
    "today",
)  # fmt: skip

_FIRST_NUMBER, _TWIN_NUMBER = 1000, 5000  # of identifiers in records


class Setting(World):
  """See the module's docstring. `key` names the task; `reseed` the records."""

  def __init__(self, key: str, split: str, reseed: int | str = 0):
    self._begin(key, split, reseed)
    super().__init__(self.rng, split)

  def _begin(self, key: str, split: str, reseed: int | str) -> None:
    self._key, self._split, self._reseed = key, split, reseed
    self.heldout = split == "heldout"
    self.first_number = _FIRST_NUMBER
    self.rng = random.Random(f"frame {key}")
    self.data = random.Random(f"data {reseed} {key}")
    self._left, self._numbers = {}, set()

  def word(self, kind: str) -> str:
    """As a world's, without shuffling a whole pool for one word of it."""
    left = self._left.get(kind)
    if left is None:
      left = self._left[kind] = list(POOLS[kind][self.heldout])
    place = self.rng.randrange(len(left))
    left[place], left[-1] = left[-1], left[place]
    return left.pop()

  def reseeded(self, reseed: int) -> Setting:
    """A fresh setting with the same frame, at its start, and other records."""
    return Setting(self._key, self._split, reseed)

  def twin(self) -> Setting:
    """A fresh setting with the same frame, at its start, and records that can stand
    beside these: those of another month."""
    other = Setting(self._key, self._split, f"{self._reseed} twin")
    other.first_number = _TWIN_NUMBER
    return other

  def beside(self, name: str) -> Setting:
    """The same people, place and day with draws of their own, for what stands
    beside the request: it is the same whenever it is asked for, whatever was
    drawn before, over all records."""
    other = Setting.__new__(Setting)  # a world of its own is not drawn
    other._begin(f"{self._key} {name}", self._split, 0)
    for fact in _FACTS:
      setattr(other, fact, getattr(self, fact))
    return other

  # Values of records. A split has numbers and dates of its own, as in `World`.

  def integer(self, low: int, high: int) -> int:
    while True:
      value = self.data.randint(low, high)
      if (value % 4 == 3) == self.heldout:
        return value

  def money(self, low: int, high: int) -> Decimal:
    return Decimal(self.integer(low * 100, high * 100)) / 100

  def day(self, first: datetime.date, days: int) -> datetime.date:
    return first + datetime.timedelta(days=self.data.randrange(days))

  def pick(self, words: Sequence[str]) -> str:
    return self.data.choice(words)

  def pool(self, kind: str) -> str:
    """Any word of `kind`, used before or not."""
    return self.pick(POOLS[kind][self.heldout])
