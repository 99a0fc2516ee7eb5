"""Batches on the devices, the next one fetched while they compute this one.

`Fed.state` is the data iterator's after that batch and before the next, so that a
save at any step names the batch that follows it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from clawgym_jax.data.pipeline import Batches
from clawgym_jax.sft.scores import Batch
from clawgym_jax.sft.setup import place


@dataclass(frozen=True)
class Fed:
  """One batch.

  Attributes:
    rows: this process's part of it, as `data.batch.collate` makes it.
    parts: its micro-batches, all processes' rows laid out on the mesh.
    state: of the data iterator, JSON.
    waited: seconds in which there was nothing to compute on, at most.
  """

  rows: dict[str, np.ndarray]
  parts: list[Batch]
  state: dict[str, Any]
  waited: float

  def real(self) -> np.ndarray:
    """Where there is a token and no padding, bool [batch, time]."""
    alone = self.rows["end"] == np.arange(1, self.rows["end"].shape[1] + 1)
    return ~(alone & (self.rows["positions"] == 0))


class Feed:
  """Takes batches one ahead; `take` gives them in order."""

  def __init__(
      self, batches: Batches, mesh: jax.sharding.Mesh | None, micro_batches: int
  ):
    self._batches = batches
    self._mesh = mesh
    self._micro_batches = micro_batches
    self._next: Fed | None = None

  def take(self) -> Fed:
    """The next batch."""
    if self._next is None:
      self.prefetch()
    fed, self._next = self._next, None
    return fed

  def prefetch(self, working: jax.Array | None = None) -> None:
    """Has the next batch ready while the devices compute `working`, if anything.

    Where that is there first, all the time that this took counts as waited.
    """
    started = time.monotonic()
    rows = next(self._batches)
    parts = [place(part, self._mesh) for part in split(rows, self._micro_batches)]
    busy = working is not None and not working.is_ready()
    waited = 0.0 if busy else time.monotonic() - started
    self._next = Fed(rows, parts, self._batches.state, waited)


def split(rows: dict[str, np.ndarray], parts: int) -> list[dict[str, np.ndarray]]:
  """`parts` micro-batches of as many rows each."""
  size = len(rows["tokens"]) // parts
  return [
      {name: value[start : start + size] for name, value in rows.items()}
      for start in range(0, size * parts, size)
  ]


def over_processes(counts: dict[str, float]) -> dict[str, float]:
  """Sums over all processes of a run, each of which must call this."""
  if jax.process_count() == 1:
    return counts
  mine = np.asarray(list(counts.values()), np.float64)
  total = multihost_utils.process_allgather(mine).reshape(-1, len(mine)).sum(0)
  return dict(zip(counts, total.tolist()))
