"""Sequences of one row as a tree of tokens, equal prefixes laid out once.

Two equal tokens with equal prefixes become one unless both are trained: each
trained token stays exactly once, in exactly the context it was sampled in, so
losses and gradients are those of the flat sequences. Without sharing, every
sequence is a root of its own, and the row is a flat packing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from clawgym_jax.contracts.errors import require
from clawgym_jax.contracts.row import Row, empty_row
from clawgym_jax.data.sequence import Sequence

_COLUMNS = ("tokens", "trained", "advantage", "rollout_logprobs", "policy_version")


class _Node:
  """A run of tokens without a branch inside it, and what follows it."""

  def __init__(self, columns: dict[str, np.ndarray]):
    self.columns = columns
    self.children: list[_Node] = []

  def __len__(self) -> int:
    return len(self.columns["tokens"])

  def split(self, at: int) -> None:
    """Keeps the first `at` tokens; the others become the only child."""
    rest = _Node({name: value[at:] for name, value in self.columns.items()})
    rest.children = self.children
    self.columns = {name: value[:at] for name, value in self.columns.items()}
    self.children = [rest]

  def adopt(self, columns: dict[str, np.ndarray]) -> None:
    """Takes over the trained tokens of an equal run."""
    for name in _COLUMNS[1:]:
      self.columns[name] = np.where(
          columns["trained"], columns[name], self.columns[name]
      )


class Tree:
  """The tokens of one row; `size` is how many it takes."""

  def __init__(self, sequences: Iterable[Sequence] = (), *, share: bool = True):
    self._roots = _Node({name: np.zeros(0) for name in _COLUMNS})
    self._share = share
    self.size = 0
    for sequence in sequences:
      self.add(sequence)

  def cost(self, sequence: Sequence) -> int:
    """How many tokens `add(sequence)` would take."""
    node, at = self._roots, 0
    while self._share:
      child, shared = _closest(node, sequence, at)
      at += shared
      if child is None or shared < len(child):
        break
      node = child
    return len(sequence) - at

  def add(self, sequence: Sequence) -> None:
    """Adds a path, along the longest one that it may share."""
    node, at = self._roots, 0
    while self._share:
      child, shared = _closest(node, sequence, at)
      if child is None:
        break
      if shared < len(child):
        child.split(shared)
      child.adopt(_columns(sequence, at, at + shared))
      node, at = child, at + shared
    if at < len(sequence):
      node.children.append(_Node(_columns(sequence, at, len(sequence))))
      self.size += len(sequence) - at

  def row(self, length: int) -> Row:
    """Pre-order layout, padded to `length` tokens."""
    require(self.size <= length, f"{self.size} tokens don't fit a row of {length}")
    row = empty_row(length)
    _lay_out(self._roots, row, 0, 0)
    return Row(**row)


def _columns(sequence: Sequence, start: int, stop: int) -> dict[str, np.ndarray]:
  return {name: getattr(sequence, name)[start:stop] for name in _COLUMNS}


def _closest(
    node: _Node, sequence: Sequence, at: int
) -> tuple[_Node | None, int]:
  """The child that shares the longest run with `sequence[at:]`, and its length."""
  best, longest = None, 0
  for child in node.children:
    length = min(len(child), len(sequence) - at)
    if length <= longest:
      continue
    tokens, trained = child.columns["tokens"], child.columns["trained"]
    stop = at + length
    differs = (tokens[:length] != sequence.tokens[at:stop]) | (
        trained[:length] & sequence.trained[at:stop]
    )
    shared = int(differs.argmax()) if differs.any() else length
    if shared > longest:
      best, longest = child, shared
  return best, longest


def _lay_out(node: _Node, row: dict[str, np.ndarray], at: int, depth: int) -> int:
  """Writes `node` at index `at`, path depth `depth`; returns the subtree's end."""
  stop = at + len(node)
  if len(node):
    row["tokens"][at:stop] = node.columns["tokens"]
    row["positions"][at:stop] = np.arange(depth, depth + len(node))
    row["loss_weight"][at:stop] = node.columns["trained"]
    for name in _COLUMNS[2:]:
      row[name][at:stop] = node.columns[name]
  end = stop
  for child in node.children:
    end = _lay_out(child, row, end, depth + len(node))
  row["end"][at:stop] = end
  return end
