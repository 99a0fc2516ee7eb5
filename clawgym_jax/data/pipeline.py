"""The endless, shuffled, sharded stream of batches, resumable to the batch.

Rows are planned once; Grain shuffles them anew every epoch from the seed, and
batches run across the end of an epoch, so every batch has one shape and no
row is left out. Where the parts of a corpus have weights, their rows alternate in
that proportion, each part shuffled and repeated by itself. The n-th batch follows
from the arguments and n: so `state` is n, and set in another process, with another
number of workers or of processes, it gives the next batch bit for bit.
"""

from __future__ import annotations

import functools
import math
import os
import shutil
from collections.abc import Sequence as Collection

import grain
import numpy as np
from absl import flags

from clawgym_jax.configs.base import Data
from clawgym_jax.contracts.errors import UserError, require
from clawgym_jax.contracts.row import Row
from clawgym_jax.data import workers as helpers
from clawgym_jax.data.batch import collate
from clawgym_jax.data.corpus import Corpus
from clawgym_jax.data.packing import Share, plan
from clawgym_jax.data.sequence import Sequence, sizes
from clawgym_jax.data.tree import Tree

_AHEAD = 4  # batches that are ready before they are asked for, of each worker
_SHM = "/dev/shm"  # in which workers hand over what they made


class Batches:
  """An iterator of `batch.collate` dictionaries.

  Args:
    sequences: what is trained on; with workers it must pickle.
    row_length: tokens of a row.
    batch_rows: rows of a batch, of all processes; each yields its own share.
    seed: of the order.
    share_prefixes: lay equal prefixes out once, as a tree.
    parts: parts of the corpus that share no row, with weights for all of them or
      for none; () is one part.
    window: sequences that are packed together, see `packing`.
    workers: helper processes that build batches; 0: a thread of this one does.
    process_index, process_count: which share of each batch is this process's.
  """

  def __init__(
      self,
      sequences: Collection[Sequence],
      *,
      row_length: int,
      batch_rows: int,
      seed: int,
      share_prefixes: bool = True,
      parts: Collection[Share] = (),
      window: int | None = None,
      workers: int = 0,
      process_index: int = 0,
      process_count: int = 1,
  ):
    require(
        batch_rows % process_count == 0,
        f"{batch_rows} rows a batch can't be shared by {process_count} processes",
    )
    self._row_length = row_length
    self._batch_rows = batch_rows
    self._workers = workers
    self._process = (process_index, process_count)
    plans = [
        plan(
            sequences, row_length, share=share_prefixes, window=window,
            among=range(part.first, part.stop), processes=workers,
        )
        for part in parts or [Share(0, len(sequences), None)]
    ]  # fmt: skip
    self.plan = [row for rows in plans for row in rows]
    _, trained = sizes(sequences)
    most = max(int(trained[row].sum()) for row in self.plan)
    self.capacity = min(row_length, -(-most // 32) * 32)
    weights = [part.weight for part in parts]
    rows = _ordered(plans, weights, seed)
    self._passes = _passes(plans, weights)
    build = functools.partial(_build, sequences, row_length, share_prefixes)
    self._rows = rows.map(build)
    self._taken = 0
    self._iterator: grain.DatasetIterator | None = None

  @classmethod
  def of(
      cls,
      corpus: Corpus,
      data: Data,
      *,
      seed: int,
      process_index: int = 0,
      process_count: int = 1,
  ) -> Batches:
    """The batches of a corpus by the settings of a run."""
    return cls(
        corpus.sequences,
        row_length=data.row_length,
        batch_rows=data.batch_rows,
        seed=seed,
        share_prefixes=data.share_prefixes,
        parts=corpus.parts,
        window=data.window,
        workers=data.workers,
        process_index=process_index,
        process_count=process_count,
    )

  def steps(self, epochs: float) -> int:
    """Batches in `epochs` passes over the rows, at least one.

    A pass over a mixture is as many rows as there are; `passes` says how often it
    sees each part.
    """
    return max(1, math.ceil(epochs * len(self.plan) / self._batch_rows))

  @property
  def passes(self) -> list[float]:
    """How often one epoch sees the rows of each part."""
    return list(self._passes)

  def __iter__(self) -> Batches:
    return self

  def __next__(self) -> dict[str, np.ndarray]:
    if self._iterator is None:
      self._iterator = self._start()
    try:
      batch = next(self._iterator)
    except RuntimeError as error:
      if "terminated unexpectedly" not in str(error):
        raise
      raise UserError(
          "a worker that builds batches was killed, for want of memory if nobody did"
          " it: run the same command again, with fewer workers"
      ) from error
    self._taken += 1
    return batch

  def close(self) -> None:
    """Ends the workers; the next batch starts them again."""
    if self._iterator is not None:
      self._iterator.close()
      self._iterator = None

  @property
  def state(self) -> dict[str, int]:
    """JSON-ready; the position after the last batch that was taken."""
    return {"next_index": self._taken}

  @state.setter
  def state(self, value: dict[str, int]) -> None:
    self.close()
    self._taken = int(value["next_index"])

  def _start(self) -> grain.DatasetIterator:
    index, count = self._process
    size = self._batch_rows // count
    batches = self._rows[self._taken * self._batch_rows + index :: count].batch(
        size,
        drop_remainder=True,
        batch_fn=functools.partial(collate, slots=self.capacity),
    )
    if not self._workers:
      return iter(batches.to_iter_dataset(grain.ReadOptions(1, _AHEAD)))
    self._check_memory(size)
    if not flags.FLAGS.is_parsed():
      flags.FLAGS.mark_as_parsed()  # Grain asks for its own before it starts workers
    return iter(
        batches.to_iter_dataset(grain.ReadOptions(1, 1)).mp_prefetch(
            grain.MultiprocessingOptions(self._workers, _AHEAD),
            worker_init_fn=functools.partial(_follow, os.getpid()),
        )
    )

  def _check_memory(self, rows: int) -> None:
    """A full /dev/shm would kill a worker without a word."""
    size = 4 * rows * (3 * self._row_length + 8 * self.capacity)
    need = self._workers * (_AHEAD + 2) * size
    if os.path.isdir(_SHM) and (free := shutil.disk_usage(_SHM).free) < need:
      raise UserError(
          f"{self._workers} workers hand over batches of {size >> 20} MiB in {_SHM},"
          f" which has {free >> 20} MiB left, of {need >> 20} needed: use fewer, or"
          " make it larger (docker: --shm-size)"
      )


def _ordered(
    plans: list[list[list[int]]], weights: list[float | None], seed: int
) -> grain.MapDataset:
  """The rows in the order in which they are trained, without an end."""
  if None in weights or not weights:
    rows = [row for part in plans for row in part]
    return grain.MapDataset.source(rows).seed(seed).shuffle().repeat()
  parts = [
      grain.MapDataset.source(rows).seed(seed + number).shuffle().repeat()
      for number, rows in enumerate(plans)
  ]
  return grain.MapDataset.mix(parts, weights)


def _passes(plans: list[list[list[int]]], weights: list[float | None]) -> list[float]:
  if None in weights or not weights:
    return [1.0] * len(plans)
  rows, total = sum(map(len, plans)), sum(weights)
  return [rows * weight / total / len(part) for part, weight in zip(plans, weights)]


def _build(
    sequences: Collection[Sequence],
    row_length: int,
    share_prefixes: bool,
    indices: list[int],
) -> Row:
  return Tree((sequences[i] for i in indices), share=share_prefixes).row(row_length)


def _follow(parent: int, worker: int, count: int) -> None:
  helpers.follow(parent)
