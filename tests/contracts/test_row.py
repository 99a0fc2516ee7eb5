"""One mask for packed sequences and trees."""

import numpy as np
import pytest

from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.row import Row, empty_row, predecessors


def test_predecessors_of_a_tree_and_of_flat_sequences():
  # 0 1 | 2 3 | 4 -> a root of two tokens with branches (2 3) and (4); then 5 6 flat
  end = np.array([5, 5, 4, 4, 5, 7, 7, 8], np.int32)
  assert predecessors(end).tolist() == [-1, 0, 1, 2, 1, -1, 5, -1]


def plainly(end):
  """`predecessors` as it is defined, token by token; None where it doesn't nest."""
  before = []
  for t, stop in enumerate(end):
    held = [j for j in range(t) if end[j] > t]
    before.append(held[-1] if held else -1)
    if stop <= t or (held and stop > end[held[-1]]):
      return None
  return before


def test_predecessors_of_any_ends_are_those_of_the_definition():
  rng = np.random.default_rng(0)
  nested = 0
  for _ in range(600):
    depths = rng.integers(0, 4, 12)
    end = np.arange(1, 13, dtype=np.int32)
    for t in range(11, -1, -1):  # the tokens of a subtree are those deeper than t
      while end[t] < 12 and depths[end[t]] > depths[t]:
        end[t] = end[end[t]]
    if rng.random() < 0.5:
      end[rng.integers(12)] = rng.integers(14)
    want = plainly(end)
    nested += want is not None
    if want is None:
      with pytest.raises(RecordError, match="does not nest"):
        predecessors(end)
    else:
      assert predecessors(end).tolist() == want
  assert 200 < nested < 500


def test_padding_is_alone():
  columns = empty_row(3)
  assert predecessors(columns["end"]).tolist() == [-1, -1, -1]
  Row(**columns)


def test_an_end_that_does_not_nest_is_an_error():
  for end in ([2, 3, 3], [0, 2], [1, 1]):
    with pytest.raises(RecordError, match="does not nest"):
      predecessors(np.array(end, np.int32))


def test_columns_agree():
  columns = empty_row(3)
  with pytest.raises(RecordError, match="end has shape"):
    Row(**{**columns, "end": columns["end"][:2]})
  with pytest.raises(RecordError, match="tokens is int64"):
    Row(**{**columns, "tokens": columns["tokens"].astype(np.int64)})
