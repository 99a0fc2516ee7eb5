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

from clawgym_jax.contracts.errors import require

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
  """
  before = np.full(len(end), -1, np.int32)
  path: list[int] = []
  for t, stop in enumerate(end):
    while path and end[path[-1]] <= t:
      path.pop()
    if path:
      before[t] = path[-1]
    require(
        int(stop) > t and (not path or stop <= end[path[-1]]),
        f"end[{t}] = {stop} does not nest in the subtree before it",
    )
    path.append(t)
  return before
