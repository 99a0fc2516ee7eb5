"""P59: over 1,000 attempts, 64 at once, no process of a run grows, and nothing
of them is left; what ended a worker first is the cause that is said."""

import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import pytest

from clawgym_jax.pool import Pool
from sandbox.backends import cgroups
from sandbox.backends.labels import Label, labelled
from tests.sandbox.small_task import make_task
from tests.sandbox.test_fleet import processes, start, summary_of, workers_of
from tests.sandbox.test_rollout import wait_for

MIB = 1 << 20


def resident(pid):
  """Bytes of memory that are the process's own, or None if it is gone."""
  try:
    status = Path(f"/proc/{pid}/status").read_text()
  except OSError:
    return None
  found = [line.split()[1] for line in status.splitlines() if line[:8] == "RssAnon:"]
  return int(found[0]) << 10 if found else None


def labelled_names():
  """The controllers of every directory and cgroup that has a label."""
  names = [*os.listdir(tempfile.gettempdir()), *(name for _, name in cgroups.left())]
  return {mark.pid for mark in map(Label.parse, names) if mark is not None}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_1000_attempts_64_at_once(tmp_path):
  for number in range(10):
    make_task(tmp_path / "tasks" / f"t{number}")
  out = tmp_path / "out"
  process = start(
      out, tmp_path / "tasks", "--harness=null", "--samples=100",
      "--workers=2", "--concurrency=64", "--json",
  )  # fmt: skip
  memory = defaultdict(list)  # by process: (attempts done, bytes)
  most = 0
  while not (out / "pool.db").exists():
    assert process.poll() is None
    time.sleep(0.1)
  time.sleep(0.5)  # until its tables are there
  pool = Pool.open(f"sqlite:///{out}/pool.db")
  while process.poll() is None:
    counts = pool.counts("eval")
    most = max(most, counts["running"])
    for pid in (process.pid, *workers_of(process.pid)):
      size = resident(pid)
      if size is not None:
        memory[pid].append((counts["scored"], size))
    time.sleep(0.5)
  _, said = process.communicate()
  assert process.returncode == 0, said
  summary = summary_of(out)
  assert (summary["scored"], summary["refilled"]) == (1000, 0)
  assert 32 < most <= 64

  assert len(memory) == 3  # no worker was replaced
  for sizes in memory.values():
    early = max(size for done, size in sizes if 150 <= done < 450)
    late = max(size for done, size in sizes if done >= 700)
    assert late - early < 16 * MIB, sizes
  print({
      "attempts_per_second": summary["attempts_per_second"],
      "most_MiB": [max(s for _, s in sizes) // MIB for sizes in memory.values()],
  })

  mine = {process.pid, *memory}
  assert not mine & {mark.pid for mark in labelled().values()}
  assert not mine & labelled_names()
  wait_for(lambda: process.pid not in {each[1] for each in processes().values()})
  assert sorted(os.listdir(out)) == [
      ".lock", "pool.db", "pool.db-shm", "pool.db-wal", "run.json", "summary.json",
      "trajectories.jsonl",
  ]  # fmt: skip
  pool.close()
