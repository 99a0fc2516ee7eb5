"""A training row: one or more trajectory trees laid out in pre-order.

Query i sees key j if and only if j <= i < end[j]: `end[j]` is one past the
last token of the subtree that starts at token j. A row of flat sequences is
the case `end` = end of the segment, so packing and tree training are one mask.
Padding has `end[j] = j + 1` (it sees itself alone), weight 0 and position 0.

Columns are numpy arrays of one length, shape [time]; a batch stacks them to
[batch, time].
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from clawgym_jax.contracts.errors import RecordError, require

_DTYPES = {
    "tokens": np.int32,
    "positions": np.int32,
    "end": np.int32,
    "loss_weight": np.float32,
    "advantage": np.float32,
    "rollout_logprobs": np.float32,
    "old_logprobs": np.float32,
    "current_logprobs": np.float32,
    "policy_version": np.int32,
}


@dataclass(frozen=True)
class Row:
  """Columns of one packed row, each [time].

  A column says something about the token it stands at: `loss_weight[t]` > 0
  if token t was sampled and is trained (as the target of the token before it
  on its path); log-probs are of token t. `advantage` is 1 for SFT.
  """

  tokens: np.ndarray
  positions: np.ndarray
  end: np.ndarray
  loss_weight: np.ndarray
  advantage: np.ndarray
  rollout_logprobs: np.ndarray
  old_logprobs: np.ndarray
  current_logprobs: np.ndarray
  policy_version: np.ndarray

  def __post_init__(self) -> None:
    length = self.tokens.shape
    for column in fields(self):
      value = getattr(self, column.name)
      require(
          value.shape == length,
          f"column {column.name} has shape {value.shape}, tokens {length}",
      )
      require(
          value.dtype == _DTYPES[column.name],
          f"column {column.name} is {value.dtype}, not {_DTYPES[column.name]}",
      )


def empty_row(length: int) -> dict[str, np.ndarray]:
  """Columns of `length` padding tokens, to be filled and made a `Row`."""
  columns = {name: np.zeros(length, dtype) for name, dtype in _DTYPES.items()}
  columns["end"] = np.arange(1, length + 1, dtype=np.int32)
  return columns


def predecessors(end: np.ndarray) -> np.ndarray:
  """For each token, the index of the token before it on its path; -1 at a root.

  In pre-order that is the nearest j < t with end[j] > t. [time] -> [time].
  `RecordError` where subtrees don't nest.
  """
  at = np.arange(len(end), dtype=np.int32)
  before = at - 1
  outside = np.flatnonzero(end[:-1] <= at[1:]) + 1  # of the subtree before them
  roots = np.maximum.accumulate(end)[outside - 1] <= outside
  before[outside[roots]] = -1
  path: list[tuple[int, int]] = []  # runs of tokens that may still have children
  for number in np.flatnonzero(~roots):
    t = outside[number]
    start = outside[number - 1] if number else 0
    if number and roots[number - 1]:
      path.clear()
    path.append((start, t))
    while path:
      start, stop = path.pop()
      wide = int(np.searchsorted(-end[start:stop], -t))  # whose subtree holds t
      if wide:
        before[t] = start + wide - 1
        path.append((start, start + wide))
        break
  nests = (end > at) & ((before < 0) | (end <= end[before]))
  if not nests.all():
    t = int(np.argmin(nests))
    raise RecordError(f"end[{t}] = {end[t]} does not nest in the subtree before it")
  return before
