"""Rows as the arrays of one training step, trained positions gathered.

The hidden state at the predecessor of token t predicts token t. Only trained
tokens are predicted: their indices are gathered here into `capacity` slots a
row, so that the language-model head runs on those alone. Slots beyond the
trained tokens have weight 0.
"""

from __future__ import annotations

from collections.abc import Sequence as Collection

import numpy as np

from clawgym_jax.contracts.errors import require
from clawgym_jax.contracts.row import Row, empty_row, predecessors

# Shares of a row's length that a capacity may take: few, so few compiles.
_SHARES = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1.0)


def capacity(trained: int, row_length: int) -> int:
  """The smallest allowed number of slots for `trained` tokens of a row."""
  require(trained <= row_length, f"{trained} trained tokens in a row of {row_length}")
  return next(
      slots for slots in (max(1, int(row_length * s)) for s in _SHARES)
      if slots >= trained
  )


def collate(
    rows: Collection[Row], slots: int, *, total_rows: int | None = None
) -> dict[str, np.ndarray]:
  """One batch of `total_rows` rows, the missing ones empty.

  Returns:
    tokens, positions, end: [batch, time].
    before, index: [batch, slots], where a trained token's predecessor and the
      token itself stand in its row.
    targets, weight, advantage, rollout_logprobs, old_logprobs: [batch, slots],
      of the trained tokens.
    share: [batch, slots], of a trained token in its trajectory, whose tokens'
      shares add up to 1. In a tree a trajectory is a path to a leaf, and a token
      on several is the first one's.
  """
  missing = (total_rows or len(rows)) - len(rows)
  require(missing >= 0, f"{len(rows)} rows in a batch of {total_rows}")
  rows = [*rows, *(Row(**empty_row(len(rows[0].tokens))) for _ in range(missing))]
  batch = {
      name: np.stack([getattr(row, name) for row in rows])
      for name in ("tokens", "positions", "end")
  }
  gathered = [_gather(row, slots) for row in rows]
  return batch | {
      name: np.stack([columns[name] for columns in gathered])
      for name in gathered[0]
  }


def _gather(row: Row, slots: int) -> dict[str, np.ndarray]:
  trained = np.flatnonzero(row.loss_weight > 0)
  require(
      len(trained) <= slots, f"{len(trained)} trained tokens for {slots} slots"
  )
  before = predecessors(row.end)[trained]
  require(bool((before >= 0).all()), "a trained token has no token before it")
  pad = (0, slots - len(trained))
  columns = {
      "before": before,
      "index": trained.astype(np.int32),
      "targets": row.tokens[trained],
      "weight": row.loss_weight[trained],
      "share": _shares(row.end, trained),
      "advantage": row.advantage[trained],
      "rollout_logprobs": row.rollout_logprobs[trained],
      "old_logprobs": row.old_logprobs[trained],
  }
  return {name: np.pad(value, pad) for name, value in columns.items()}


def _shares(end: np.ndarray, trained: np.ndarray) -> np.ndarray:
  """1 / trained tokens of its trajectory, for each index of `trained`; float32."""
  leaves = np.flatnonzero(end == np.arange(1, len(end) + 1))
  _, owner, count = np.unique(
      np.searchsorted(leaves, trained), return_inverse=True, return_counts=True
  )
  return (1 / count[owner]).astype(np.float32)
