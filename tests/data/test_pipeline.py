"""The n-th batch is the same however many workers and processes make it."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from clawgym_jax.configs.base import Data
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.data.packing import Share, plan
from clawgym_jax.data.pipeline import Batches
from clawgym_jax.data.sequence import supervised
from tests.conftest import ROOT
from tests.data.chats import alive, children_of, load, write
from tests.pool.samples import wait_for


def flat(lengths, token=1):
  return [supervised([token] * n, [False] + [True] * (n - 1)) for n in lengths]


def digest(batch):
  names = sorted(batch)
  return hashlib.sha256(b"".join(batch[n].tobytes() for n in names)).hexdigest()


def sources_of(batch):
  """The first token of each row: which part it is of."""
  return batch["tokens"][:, 0].tolist()


def test_windows_are_packed_by_themselves_and_by_any_process():
  sequences = flat([20, 12, 30, 2, 19, 13, 16, 16])
  rows = plan(sequences, 32, share=False, window=4)
  assert rows == [[2, 3], [0, 1], [4, 5], [6, 7]]
  again = plan(sequences[4:], 32, share=False, window=4)
  assert again == [[i - 4 for i in row] for row in rows[2:]]
  assert plan(sequences, 32, share=False, window=4, among=range(4, 8)) == rows[2:]
  assert plan(sequences, 32, share=False, window=4, processes=2) == rows
  assert sorted(i for row in plan(sequences, 32) for i in row) == list(range(8))


def mixture(seed=0, **kw):
  sequences = flat([8] * 10, token=1) + flat([8] * 30, token=2)
  parts = [Share(0, 10, 3.0), Share(10, 40, 1.0)]
  return Batches(
      sequences, row_length=8, batch_rows=4, seed=seed, parts=parts, **kw
  )  # fmt: skip


def test_a_mixture_has_the_weights_that_were_given():
  batches = mixture()
  assert len(batches.plan) == 40 and batches.steps(1) == 10
  assert batches.passes == [3.0, 1 / 3]
  seen = [row for _ in range(100) for row in sources_of(next(batches))]
  assert seen.count(1) == 300
  assert all(2 <= seen[i : i + 4].count(1) <= 4 for i in range(0, 400, 4))


def test_parts_without_weights_are_seen_once_an_epoch_and_share_no_row():
  sequences = flat([4] * 6, token=1) + flat([4] * 6, token=2)
  parts = [Share(0, 6, None), Share(6, 12, None)]
  batches = Batches(
      sequences, row_length=8, batch_rows=3, seed=0, share_prefixes=False, parts=parts
  )
  assert batches.passes == [1.0, 1.0] and batches.steps(1) == 2
  epoch = [next(batches) for _ in range(2)]
  rows = np.concatenate([batch["tokens"] for batch in epoch])
  assert sorted(map(tuple, rows)) == [(1,) * 8] * 3 + [(2,) * 8] * 3


def test_two_processes_share_the_batches_of_a_mixture():
  whole = mixture()
  halves = [mixture(process_index=i, process_count=2) for i in range(2)]
  for _ in range(25):
    apart = [sources_of(next(half)) for half in halves]
    assert sorted(apart[0] + apart[1]) == sorted(sources_of(next(whole)))
    assert all(len(rows) == 2 for rows in apart)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  folder = tmp_path_factory.mktemp("corpus")
  a, b = write(folder / "a.jsonl", 24), write(folder / "b.jsonl", 16, turns=1)
  return SimpleNamespace(names=f"{a}@2,{b}@1", cache=folder / "cache")


def batches_of(corpus, **kw):
  data = Data(row_length=512, batch_rows=2, **kw)
  return Batches.of(load(corpus.names, corpus.cache), data, seed=5)


def test_any_number_of_workers_gives_and_continues_the_same_batches(corpus):
  alone = batches_of(corpus)
  epoch = alone.steps(1)
  want, states = [], []
  for _ in range(2 * epoch + 3):
    want.append(digest(next(alone)))
    states.append(json.loads(json.dumps(alone.state)))
  # In the middle of an epoch, and at its boundary.
  for workers, at in ((2, epoch - 1), (1, 1)):
    batches = batches_of(corpus, workers=workers)
    batches.state = states[at]
    assert [digest(next(batches)) for _ in range(3)] == want[at + 1 : at + 4]
    assert batches.state == states[at + 3]
    batches.close()
  alone.state = states[epoch]  # and back to none
  assert digest(next(alone)) == want[epoch + 1]


def test_a_killed_worker_is_named(corpus):
  before = set(children_of(os.getpid()))
  batches = batches_of(corpus, workers=1)
  next(batches)
  command = "spawn_main"
  workers = [
      pid for pid in set(children_of(os.getpid())) - before
      if command in open(f"/proc/{pid}/cmdline").read()
  ]
  assert workers
  for pid in workers:
    os.kill(pid, signal.SIGKILL)
  with pytest.raises(UserError, match="worker that builds batches was killed"):
    for _ in range(20):
      next(batches)
  batches.close()


SCRIPT = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from tests.data.test_pipeline import batches_of

if __name__ == "__main__":
  corpus = SimpleNamespace(names=sys.argv[1], cache=Path(sys.argv[2]))
  batches = batches_of(corpus, workers=1)
  next(batches)
  print("started", flush=True)
  time.sleep(600)
"""


def test_workers_go_with_the_process_that_started_them(corpus, tmp_path):
  (tmp_path / "script.py").write_text(SCRIPT)
  process = subprocess.Popen(
      [sys.executable, tmp_path / "script.py", corpus.names, corpus.cache],
      env=os.environ | {"PYTHONPATH": str(ROOT)},
      stdout=subprocess.PIPE,
      text=True,
  )
  try:
    assert process.stdout.readline() == "started\n"
    workers = children_of(process.pid)
    assert workers
  finally:
    process.kill()
    process.communicate()
  wait_for(lambda: not any(map(alive, workers)))


def test_too_little_shared_memory_is_said_before_work_starts(corpus, monkeypatch):
  monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))
  with pytest.raises(UserError, match="use fewer, or.*--shm-size"):
    next(batches_of(corpus, workers=2))
  next(batches_of(corpus))
