"""The endless, shuffled, sharded stream of batches, resumable to the batch.

Rows are planned once; Grain shuffles them anew every epoch from the seed, and
batches run across the end of an epoch, so every batch has one shape and no
row is left out. `state` after n batches, restored in another process, gives
batch n + 1 bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Collection

import grain
import numpy as np

from clawgym_jax.contracts.errors import require
from clawgym_jax.data.batch import collate
from clawgym_jax.data.packing import plan
from clawgym_jax.data.sequence import Sequence
from clawgym_jax.data.tree import Tree


class Batches:
  """An iterator of `batch.collate` dictionaries.

  `batch_rows` counts the rows of all processes; each yields its own share.
  """

  def __init__(
      self,
      sequences: Collection[Sequence],
      *,
      row_length: int,
      batch_rows: int,
      seed: int,
      share_prefixes: bool = True,
      process_index: int = 0,
      process_count: int = 1,
  ):
    require(
        batch_rows % process_count == 0,
        f"{batch_rows} rows a batch can't be shared by {process_count} processes",
    )
    self.plan = plan(sequences, row_length, share=share_prefixes)
    self._batch_rows = batch_rows
    most = max(sum(sequences[i].trained_tokens for i in row) for row in self.plan)
    self.capacity = min(row_length, -(-most // 32) * 32)

    def build(indices: list[int]):
      members = (sequences[i] for i in indices)
      return Tree(members, share=share_prefixes).row(row_length)

    rows = grain.MapDataset.source(self.plan).seed(seed).shuffle().repeat()
    batches = (
        rows[process_index::process_count]
        .map(build)
        .batch(
            batch_rows // process_count,
            drop_remainder=True,
            batch_fn=lambda rows: collate(rows, self.capacity),
        )
    )
    self._iterator = iter(
        batches.to_iter_dataset(
            grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)
        )
    )

  def steps(self, epochs: float) -> int:
    """Batches in `epochs` passes over the rows, at least one."""
    return max(1, math.ceil(epochs * len(self.plan) / self._batch_rows))

  def __iter__(self) -> Batches:
    return self

  def __next__(self) -> dict[str, np.ndarray]:
    return next(self._iterator)

  @property
  def state(self) -> dict[str, int]:
    """JSON-ready; the position after the last batch that was taken."""
    return dict(self._iterator.get_state())

  @state.setter
  def state(self, value: dict[str, int]) -> None:
    self._iterator.set_state(dict(value))
