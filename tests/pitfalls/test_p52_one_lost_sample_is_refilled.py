"""P52: a lost sample is made again by itself, within bounds; its group is kept."""

from clawgym_jax.contracts.trajectory import scored, unscored
from clawgym_jax.pool import Pool
from tests.pool.samples import step, trajectory


def _finish(pool, outcome):
  attempt = pool.claim("train", "w", 60)
  pool.append_step(attempt.trajectory_id, step(0))
  assert pool.complete(trajectory(attempt, outcome))
  return attempt


def test_p52(tmp_path):
  pool = Pool.open(f"sqlite:///{tmp_path}/pool.db")
  pool.add_group("g", "train", "t", 2, max_attempts=2)
  _finish(pool, unscored("judge unreachable"))
  _finish(pool, unscored("judge unreachable"))  # the refill goes first
  assert pool.pending("train") == 1
  last = _finish(pool, scored(1.0))
  assert last.sample_index == 1
  (group,) = pool.lease_groups("train", 1, "trainer", 60)
  assert (len(group.trajectories), group.unscored) == (1, 1)
  counts = pool.counts("train")
  assert (counts["samples"], counts["scored"], counts["unscored"]) == (2, 1, 1)
  assert (counts["refilled"], counts["dropped_tokens"]) == (1, 8)
  assert pool.dropped("train") == {"judge unreachable": 2}
  statuses = [t.outcome.status for t in pool.trajectories("train")]
  assert statuses == ["unscored", "scored"]
