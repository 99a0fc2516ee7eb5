"""Which tasks of a run have several user turns, and which have a hazard.

Of every block of consecutive tasks some have turns and some others a hazard;
which ones is drawn for each block, so that they meet all scenarios, and tasks
with skills and without. The patterns of turns take turns themselves, and so do
the kinds of hazards and the variants of each kind.
"""

from __future__ import annotations

import random
from functools import lru_cache

from data_gen.compose.graph import Graph
from data_gen.compose.hazards import HAZARDS, Hazard
from data_gen.compose.turns import PATTERNS, Pattern

BLOCK = 25
WITH_TURNS, WITH_HAZARD = 3, 2  # of the tasks of a block
_TRIES = 80  # settings for one pattern


def pattern_of(
    seed: int, split: str, index: int, graph: Graph, attempt: int = 0
) -> Pattern | None:
  """The pattern of task `index`, which is of `graph`; None where it has one user
  turn. Settings may have nothing for it: after some attempts it is the next one."""
  place = _place(seed, split, index)
  if place >= WITH_TURNS:
    return None
  fitting = [one for one in PATTERNS.values() if one.fits(graph)]
  number = index // BLOCK * WITH_TURNS + place + attempt // _TRIES
  return fitting[number % len(fitting)]


def hazard_of(seed: int, split: str, index: int, graph: Graph) -> Hazard | None:
  """The hazard of task `index`, which is of `graph`; None where it has none."""
  place = _place(seed, split, index) - WITH_TURNS
  if not 0 <= place < WITH_HAZARD:
    return None
  kinds = sorted({one.hazard for one in HAZARDS.values()})
  turn, kind = divmod(index // BLOCK * WITH_HAZARD + place, len(kinds))
  variants = [
      one for one in HAZARDS.values() if one.hazard == kinds[kind] and one.fits(graph)
  ]
  return variants[turn % len(variants)]


def _place(seed: int, split: str, index: int) -> int:
  """The task's place in the order in which its block gives them out."""
  block, within = divmod(index, BLOCK)
  return _order(seed, split, block).index(within)


@lru_cache(maxsize=64)
def _order(seed: int, split: str, block: int) -> list[int]:
  order = list(range(BLOCK))
  random.Random(f"extras {seed} {split} {block}").shuffle(order)
  return order
