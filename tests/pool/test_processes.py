"""The pool between processes: races, and kill -9 of a producer and a consumer."""

import signal
import subprocess
import sys
from collections import Counter

from clawgym_jax.pool import Pool
from tests.pool.samples import trajectory, wait_for


def _start(role, url, owner):
  return subprocess.Popen(
      [sys.executable, "-m", "tests.pool.worker", role, url, owner],
      stdout=subprocess.PIPE,
      text=True,
  )


def _url(tmp_path):
  return f"sqlite:///{tmp_path}/pool.db"


def _kill(process):
  process.send_signal(signal.SIGKILL)
  process.wait(10)
  process.stdout.close()


def test_racing_producers_and_consumers_do_each_thing_once(tmp_path):
  pool = Pool.open(_url(tmp_path))
  for name in "abcdefgh":
    pool.add_group(name, "train", "t", 3)
  producers = [_start("produce", _url(tmp_path), f"p{i}") for i in range(2)]
  consumers = [_start("consume", _url(tmp_path), f"c{i}") for i in range(2)]
  made = [line for p in producers for line in p.communicate(timeout=60)[0].split("\n")]
  used = [line for c in consumers for line in c.communicate(timeout=60)[0].split("\n")]
  assert all(p.returncode == 0 for p in producers + consumers)
  expected = [f"{group} {sample}" for group in "abcdefgh" for sample in range(3)]
  assert sorted(filter(None, made)) == expected
  assert sorted(filter(None, used)) == list("abcdefgh")


def test_kill_9_of_a_producer(tmp_path):
  pool = Pool.open(_url(tmp_path))
  pool.add_group("g", "train", "t", 2)
  victim = _start("hold", _url(tmp_path), "victim")
  held = victim.stdout.readline().strip()
  _kill(victim)
  # What was acknowledged is there; after the lease the sample is made anew.
  assert len(pool.steps(held)) == 1
  other = _start("produce", _url(tmp_path), "other")
  made = other.communicate(timeout=60)[0].split("\n")
  assert Counter(filter(None, made)) == {"g 0": 1, "g 1": 1}
  (group,) = pool.lease_groups("train", 1, "trainer", 60)
  assert [len(t.steps) for t in group.trajectories] == [3, 3]
  assert pool.counts("train")["refilled"] == 1


def test_kill_9_of_a_consumer(tmp_path):
  pool = Pool.open(_url(tmp_path))
  for name in "ab":
    pool.add_group(name, "train", "t", 1)
    pool.complete(trajectory(pool.claim("train", "w", 60)))
  victim = _start("lease", _url(tmp_path), "victim")
  acked = victim.stdout.readline().strip()
  _kill(victim)
  again = []
  wait_for(lambda: again or again.extend(pool.lease_groups("train", 5, "c", 60)))
  pool.ack([group.group_id for group in again], "c")
  assert sorted([acked] + [group.group_id for group in again]) == ["a", "b"]
  assert pool.counts("train")["done"] == 2
