"""Days that a text names, in whatever form people and programs write them."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator

Day = tuple[int, int, int]  # year, or 0 where none is said; month; day

_MONTHS = {
    name.lower(): number
    for names in (calendar.month_name, calendar.month_abbr)
    for number, name in enumerate(names) if number
}  # fmt: skip
_NAME = "|".join(sorted(_MONTHS, key=len, reverse=True))
# In numbers: year first, packed, or last; year last has the day or the month first.
NUMBERED = re.compile(
    r"(?<!\d)(?:(\d{4})[-/.](\d\d?)[-/.](\d\d?)|((?:19|20)\d\d)(\d\d)(\d\d)"
    r"|(\d\d?)[-/.](\d\d?)[-/.](\d{4}))(?!\d)"
)
_NAMED = re.compile(
    rf"(?i)(?<!\w)(?:(\d\d?)(?:st|nd|rd|th|\.)?\s+(?:of\s+)?({_NAME})"
    rf"|({_NAME})\.?\s+(\d\d?)(?:st|nd|rd|th)?)(?!\w)(?:,?\s+(\d{{4}})(?!\w))?"
)


def days(text: str) -> Iterator[Day]:
  """All days in it; of 3/4/2026 both that it may be."""
  for found in NUMBERED.finditer(text):
    yield from _meant(found)
  for found in _NAMED.finditer(text):
    first, name, other_name, last, year = found.groups()
    month = _MONTHS[(name or other_name).lower()]
    yield int(year or 0), month, int(first or last)


def _meant(found: re.Match[str]) -> Iterator[Day]:
  numbers = [int(part) for part in found.groups() if part is not None]
  if found[7] is None:
    orders = [numbers]
  else:
    first, second, year = numbers
    orders = [[year, second, first], [year, first, second]]
  for year, month, day in orders:
    if 1 <= month <= 12 and 1 <= day <= 31:
      yield year, month, day
