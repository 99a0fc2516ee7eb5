"""Which sequences share a row: those that share a prefix, then the best fit.

Best-fit decreasing: of a window of consecutive sequences the longest goes in first,
each into the row where it takes the fewest tokens and then leaves the least room.
The same input always gives the same rows, and a window's rows depend on that window
alone. No sequence is cut; one longer than a row is an error.
"""

from __future__ import annotations

from collections.abc import Sequence as Collection
from dataclasses import dataclass

import numpy as np

from clawgym_jax.contracts.errors import require
from clawgym_jax.data import workers
from clawgym_jax.data.sequence import Sequence, sizes
from clawgym_jax.data.tree import Tree

_OPEN_ROWS = 32  # bounds the time of a plan; the fullest row is closed first


@dataclass(frozen=True)
class Share:
  """Sequences `first` to `stop` of a corpus, which have their rows to themselves.

  `weight` is their share of a mixture in proportion to the others'; None: no mixture.
  """

  first: int
  stop: int
  weight: float | None


def plan(
    sequences: Collection[Sequence],
    row_length: int,
    *,
    share: bool = True,
    window: int | None = None,
    among: range | None = None,
    processes: int = 0,
) -> list[list[int]]:
  """Rows as lists of indices into `sequences`; each of `among` (None: all) once.

  `window` is how many sequences are packed together, None: all of them. Windows are
  shared by `processes` helpers, and by none if it is 0.
  """
  among = range(len(sequences)) if among is None else among
  length, _ = sizes(sequences)
  longest = int(length[among.start : among.stop].max(initial=0))
  require(
      longest <= row_length,
      f"a sequence of {longest} tokens is longer than a row of {row_length}",
  )
  size = window or len(among) or 1
  windows = [among[start : start + size] for start in range(0, len(among), size)]
  made = dict(
      workers.each(_pack, windows, sequences, row_length, share, processes=processes)
  )
  return [row for window in windows for row in made[window]]


def _pack(
    sequences: Collection[Sequence], row_length: int, share: bool, window: range
) -> list[list[int]]:
  length = sizes(sequences)[0][window.start : window.stop]
  order = window.start + np.argsort(-length, kind="stable")
  rows: list[list[int]] = []
  open_rows: dict[int, Tree] = {}
  for index in order.tolist():
    sequence = sequences[index]
    fits = []
    for number, tree in open_rows.items():
      cost = tree.cost(sequence)
      if tree.size + cost <= row_length:
        fits.append((cost, row_length - tree.size - cost, number))
    if fits:
      number = min(fits)[2]
    else:
      number = len(rows)
      rows.append([])
      if len(open_rows) == _OPEN_ROWS:
        del open_rows[max(open_rows, key=lambda n: open_rows[n].size)]
      open_rows[number] = Tree(share=share)
    rows[number].append(index)
    open_rows[number].add(sequence)
  return rows
