"""Which sequences share a row: those that share a prefix, then the best fit.

Sequences go in from the longest to the shortest, so the same input always
gives the same rows. No sequence is cut; one longer than a row is an error.
"""

from __future__ import annotations

from collections.abc import Sequence as Collection

from clawgym_jax.contracts.errors import require
from clawgym_jax.data.sequence import Sequence
from clawgym_jax.data.tree import Tree

_OPEN_ROWS = 32  # bounds the time of a plan; the fullest row is closed first


def plan(
    sequences: Collection[Sequence], row_length: int, *, share: bool = True
) -> list[list[int]]:
  """Rows as lists of indices into `sequences`; every index exactly once."""
  rows: list[list[int]] = []
  open_rows: dict[int, Tree] = {}
  for index in sorted(range(len(sequences)), key=lambda i: -len(sequences[i])):
    sequence = sequences[index]
    require(
        len(sequence) <= row_length,
        f"a sequence of {len(sequence)} tokens is longer than a row of {row_length}",
    )
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
