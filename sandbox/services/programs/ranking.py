"""Which of some texts answer a query best: BM25 over whole words.

Scores lie between 0 and 1: the share of what a perfect text would have. The
same texts and query give the same order, and texts of one score keep theirs.
Standard library only, Python 3.9 or newer: it also runs inside sandboxes.
"""

from __future__ import annotations

import math
import re
from collections import Counter

SATURATION = 1.2  # how soon a word that comes again stops to count
LENGTH = 0.75  # how much a long text must have more of it

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
  return _WORD.findall(text.casefold())


def rank(query: str, texts: list[str]) -> list[tuple[float, int]]:
  """(score, index) of each text that has a word of the query, best first."""
  wanted = sorted(set(words(query)))
  counts = [Counter(words(text)) for text in texts]
  lengths = [sum(count.values()) for count in counts]
  mean = sum(lengths) / len(lengths) if sum(lengths, 0) else 1.0
  rarity = {}
  for word in wanted:
    having = sum(word in count for count in counts)
    rarity[word] = math.log(1.0 + (len(texts) - having + 0.5) / (having + 0.5))
  most = sum(rarity.values()) * (SATURATION + 1.0)
  scored = []
  for index, count in enumerate(counts):
    room = SATURATION * (1.0 - LENGTH + LENGTH * lengths[index] / mean)
    total = sum(
        rarity[word] * count[word] * (SATURATION + 1.0) / (count[word] + room)
        for word in wanted
        if word in count
    )
    if total > 0.0:
      scored.append((round(total / most, 6), index))
  return sorted(scored, key=lambda pair: (-pair[0], pair[1]))


def snippet(query: str, text: str, most: int = 200) -> str:
  """The stretch of `text` with the most different words of `query`, on one line."""
  spans = [(m.start(), m.end()) for m in re.finditer(r"\S+", text)]
  wanted = set(words(query))
  found = [wanted.intersection(words(text[a:b])) for a, b in spans]
  best, place = -1, 0
  for start in range(0, len(spans), 5):
    here, end = set(), start
    while end < len(spans) and spans[end][1] - spans[start][0] <= most:
      here |= found[end]
      end += 1
    if len(here) > best:
      best, place = len(here), start
  if not spans:
    return ""
  end = place
  while end < len(spans) and spans[end][1] - spans[place][0] <= most:
    end += 1
  shown = " ".join(text[a:b] for a, b in spans[place : max(end, place + 1)])[:most]
  return ("… " if place else "") + shown + (" …" if end < len(spans) else "")
