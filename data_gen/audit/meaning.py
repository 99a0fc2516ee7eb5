"""Which requests of a set mean nearly the same: cosines of their embeddings.

Within a category, greedy in the order of names: a request that is as near as `most` to
one that stays does not stay itself (as ClawGym, arXiv 2604.26904, with 0.90). The
whole request is compared, the person's way of putting it with it: two tasks of one
family in two voices are two tasks. Over 384 tasks of twelve of our families, 32 of
each, the nearest that stays is at 0.61 in the median and at 0.85 at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from clawgym_jax import cli

MOST = 0.90
_CHUNK = 128  # texts between two steps of the bar

Requests = Mapping[str, tuple[str, str]]  # name -> category and text
Vectors = Callable[[Sequence[str]], np.ndarray]


def nearest_by_meaning(
    texts: Requests, others: Requests, vectors: Vectors, most: float = MOST
) -> dict[str, tuple[float, str]]:
  """For each name of `texts` the highest cosine to a request before it that stays, or
  to one of `others`, which all stay, and that one's name; 0.0 and "" for the first of
  a category. `vectors` gives rows of length 1.
  """
  found: dict[str, tuple[float, str]] = {}
  stay: dict[str, tuple[list[str], np.ndarray]] = {}
  counts: dict[str, int] = defaultdict(int)
  for category, _ in (*others.values(), *texts.values()):
    counts[category] += 1
  for given, judged in ((others, False), (texts, True)):
    for (name, (category, _)), row in zip(sorted(given.items()), _rows(given, vectors)):
      if category not in stay:
        stay[category] = [], np.zeros((counts[category], len(row)), np.float32)
      names, kept = stay[category]
      if judged:
        found[name] = _nearest(row, names, kept)
      if not judged or found[name][0] < most:
        kept[len(names)] = row
        names.append(name)
  return found


def _rows(given: Requests, vectors: Vectors) -> Iterator[np.ndarray]:
  """The vectors of the texts, in the order of names."""
  texts = [text for _, (_, text) in sorted(given.items())]
  if not texts:
    return
  bar = cli.progress(len(texts), "meaning", unit="task")
  try:
    for start in range(0, len(texts), _CHUNK):
      rows = vectors(texts[start : start + _CHUNK])
      bar.update(len(rows))
      yield from rows
  finally:
    bar.close()


def _nearest(
    row: np.ndarray, names: list[str], kept: np.ndarray
) -> tuple[float, str]:
  if not names:
    return 0.0, ""
  cosines = kept[: len(names)] @ row
  best = int(cosines.argmax())
  return round(float(cosines[best]), 3), names[best]
