"""The pool within one process: refills, leases, staleness, counts."""

import time

import pytest

from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.trajectory import scored, truncated, unscored
from clawgym_jax.pool import AttemptGone, LeaseLost, Pool
from tests.pool.samples import step, trajectory


@pytest.fixture
def pool(tmp_path):
  pool = Pool.open(f"sqlite:///{tmp_path}/pool.db")
  yield pool
  pool.close()


def _finish(pool, outcome=None, *, version=0, channel="train"):
  attempt = pool.claim(channel, "w", 60)
  pool.append_step(attempt.trajectory_id, step(0, version=version))
  assert pool.complete(trajectory(attempt, outcome))
  return attempt


def test_a_group_goes_from_planned_to_consumed(pool):
  assert pool.add_group("g", "train", "/tasks/g", 2)
  assert not pool.add_group("g", "train", "/tasks/g", 2)
  with pytest.raises(RecordError, match="not as"):
    pool.add_group("g", "train", "/tasks/g", 3)
  assert pool.pending("train") == 2

  first = pool.claim("train", "w", 60)
  second = pool.claim("train", "w", 60)
  assert (first.sample_index, second.sample_index) == (0, 1)
  assert first.task_dir == "/tasks/g"
  assert pool.claim("train", "w", 60) is None
  pool.append_step(first.trajectory_id, step(0))
  pool.append_step(first.trajectory_id, step(0))
  pool.append_step(first.trajectory_id, step(1))
  assert pool.complete(trajectory(first, scored(0.5)))
  assert pool.lease_groups("train", 1, "trainer", 60) == []
  assert pool.complete(trajectory(second, truncated("turn limit", 0.0)))

  (group,) = pool.lease_groups("train", 5, "trainer", 60)
  assert [t.outcome.score for t in group.trajectories] == [0.5, 0.0]
  assert group.trajectories[0].steps == [step(0), step(1)]
  assert group.unscored == 0
  pool.ack(["g"], "trainer")
  pool.ack(["g"], "trainer")
  assert pool.lease_groups("train", 5, "trainer", 60) == []
  counts = pool.counts("train")
  assert (counts["done"], counts["scored"], counts["truncated"]) == (1, 1, 1)
  assert (counts["sampled_tokens"], counts["dropped_tokens"]) == (8, 0)
  assert [t.sample_index for t in pool.trajectories("train")] == [0, 1]


def test_a_step_must_fit_what_is_there(pool):
  pool.add_group("g", "train", "t", 1)
  with pytest.raises(AttemptGone):
    pool.append_step("g.0.0", step(0))
  attempt = pool.claim("train", "w", 60)
  with pytest.raises(RecordError, match="unknown parent"):
    pool.append_step(attempt.trajectory_id, step(1))
  pool.append_step(attempt.trajectory_id, step(0))
  with pytest.raises(RecordError, match="another step"):
    pool.append_step(attempt.trajectory_id, step(0, version=3))
  assert pool.steps(attempt.trajectory_id) == [step(0)]
  pool.complete(trajectory(attempt))
  assert not pool.complete(trajectory(attempt, scored(0.0)))
  with pytest.raises(AttemptGone):
    pool.append_step(attempt.trajectory_id, step(1))


def test_a_group_without_a_judged_sample_is_dead(pool):
  pool.add_group("g", "train", "t", 1, max_attempts=1)
  _finish(pool, unscored("host lost"))
  assert pool.lease_groups("train", 1, "trainer", 60) == []
  assert pool.counts("train")["dead"] == 1
  assert pool.pending("train") == 0


def test_an_expired_attempt_is_replaced_and_its_producer_refused(pool):
  pool.add_group("g", "train", "t", 1, max_attempts=2)
  dead = pool.claim("train", "w1", 0.01)
  pool.append_step(dead.trajectory_id, step(0))
  time.sleep(0.02)
  again = pool.claim("train", "w2", 60)
  assert (again.attempt, again.sample_index) == (1, 0)
  assert pool.steps(again.trajectory_id) == []
  with pytest.raises(AttemptGone):
    pool.append_step(dead.trajectory_id, step(1))
  with pytest.raises(AttemptGone):
    pool.renew(dead.trajectory_id, "w1", 60)
  assert not pool.complete(trajectory(dead))
  assert pool.complete(trajectory(again))
  assert pool.counts("train")["dropped_tokens"] == 4
  assert pool.dropped("train") == {"lease expired": 1}


def test_a_sample_whose_producers_all_die_counts_as_unscored(pool):
  pool.add_group("g", "train", "/tasks/t7", 1, max_attempts=2)
  for _ in range(2):
    pool.claim("train", "w", 0.001)
    time.sleep(0.005)
  assert pool.claim("train", "w", 60) is None
  (lost,) = pool.trajectories("train")
  assert (lost.task_id, lost.outcome.status) == ("t7", "unscored")
  assert pool.counts("train")["dead"] == 1


def test_renewing_keeps_an_attempt(pool):
  pool.add_group("g", "train", "t", 1)
  attempt = pool.claim("train", "w", 0.05)
  pool.renew(attempt.trajectory_id, "w", 60)
  time.sleep(0.06)
  assert pool.claim("train", "w2", 60) is None
  with pytest.raises(AttemptGone):
    pool.renew(attempt.trajectory_id, "w2", 60)


def test_release_begins_anew_at_no_cost(pool):
  pool.add_group("g", "train", "t", 1, max_attempts=1)
  pool.claim("train", "w", 60)
  assert pool.release("w") == 1
  attempt = _finish(pool)
  assert attempt.attempt == 1
  assert len(pool.lease_groups("train", 1, "trainer", 60)) == 1
  assert pool.release("trainer") == 1
  assert len(pool.lease_groups("train", 1, "trainer", 60)) == 1


def test_a_slow_group_holds_up_nobody(pool):
  for name in "abc":
    pool.add_group(name, "train", "t", 1)
  slow = pool.claim("train", "w", 60)
  _finish(pool)
  _finish(pool)
  ready = pool.lease_groups("train", 5, "trainer", 60)
  assert [group.group_id for group in ready] == ["b", "c"]
  pool.complete(trajectory(slow))
  assert [g.group_id for g in pool.lease_groups("train", 5, "trainer", 60)] == ["a"]


def test_stale_groups_are_counted_and_never_leased(pool):
  for name, version in (("old", 1), ("new", 3)):
    pool.add_group(name, "train", "t", 1)
    _finish(pool, version=version)
  leased = pool.lease_groups("train", 5, "trainer", 60, min_policy_version=2)
  assert [group.group_id for group in leased] == ["new"]
  assert pool.counts("train")["stale"] == 1
  # Nor does a group that grew old while it was leased come back.
  pool.release("trainer")
  assert not pool.lease_groups("train", 5, "trainer", 60, min_policy_version=4)
  assert pool.counts("train")["stale"] == 2


def test_a_group_lease_expires_and_belongs_to_one(pool):
  pool.add_group("g", "train", "t", 1)
  _finish(pool)
  pool.lease_groups("train", 1, "a", 0.01)
  time.sleep(0.02)
  assert len(pool.lease_groups("train", 1, "b", 60)) == 1
  with pytest.raises(LeaseLost):
    pool.ack(["g"], "a")
  pool.ack(["g"], "b")


def test_channels_are_apart_and_close(pool):
  pool.add_group("g", "eval", "t", 1)
  assert pool.claim("train", "w", 60) is None
  assert not pool.closed("eval")
  pool.close_channel("eval")
  assert pool.closed("eval") and not pool.closed("train")


def test_policy_version(pool):
  assert pool.policy_version() == 0
  pool.set_policy_version(7)
  assert pool.policy_version() == 7


def test_a_session_ends_with_its_attempt(pool):
  pool.add_group("g", "train", "t", 1)
  with pytest.raises(AttemptGone):
    pool.register("g.0.0", "secret")
  attempt = pool.claim("train", "w", 60)
  pool.register(attempt.trajectory_id, "secret")
  assert pool.registration(attempt.trajectory_id) not in (None, "secret")
  pool.complete(trajectory(attempt))
  assert pool.registration(attempt.trajectory_id) is None


def test_urls_that_are_no_pool(tmp_path):
  for url in ("postgresql://h/db", "mysql://x", "sqlite:///", str(tmp_path)):
    with pytest.raises(UserError):
      Pool.open(url)
  (tmp_path / "junk").write_bytes(b"not a database" * 100)
  with pytest.raises(UserError, match="can't open"):
    Pool.open(f"sqlite:///{tmp_path}/junk")
