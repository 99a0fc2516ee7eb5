"""P56: 2N batches equal N + resume + N in bit-equal order, also over an epoch."""

import json

import numpy as np
import pytest

from clawgym_jax.data.pipeline import Batches
from clawgym_jax.data.sequence import supervised


def stream(**kw):
  rng = np.random.default_rng(0)
  sequences = []
  for _ in range(40):
    length = int(rng.integers(8, 24))
    sequences.append(
        supervised(rng.integers(0, 99, length).tolist(), [False] + [True] * (length - 1))
    )
  return Batches(sequences, row_length=32, batch_rows=4, seed=7, **kw)


def test_resume_at_every_point_gives_the_same_batches():
  whole = stream()
  epoch = whole.steps(1)
  reference, states = [], []
  for _ in range(2 * epoch + 1):
    reference.append(next(whole))
    states.append(json.loads(json.dumps(whole.state)))
  for at in (0, epoch - 2, epoch - 1, epoch):
    resumed = stream()
    resumed.state = states[at]
    for expected in reference[at + 1 : at + 4]:
      batch = next(resumed)
      for name, value in expected.items():
        np.testing.assert_array_equal(batch[name], value)


def test_epochs_are_shuffled_anew_and_lose_no_row():
  batches = stream()
  rows = len(batches.plan)
  seen = np.concatenate([next(batches)["tokens"] for _ in range(rows)])
  passes = seen.reshape(4, rows, -1)
  for one in passes[1:]:
    assert sorted(map(bytes, one)) == sorted(map(bytes, passes[0]))
    assert not (one == passes[0]).all()


def test_processes_share_each_batch():
  whole = next(stream())["tokens"]
  parts = [
      next(stream(process_index=i, process_count=2))["tokens"] for i in range(2)
  ]
  assert sorted(map(bytes, np.concatenate(parts))) == sorted(map(bytes, whole))


def test_rows_that_processes_cannot_share_are_refused():
  with pytest.raises(ValueError, match="processes"):
    stream(process_count=3)
