"""P26: a rollout that is rejected is made again a few times, then given up."""

from clawgym_jax.contracts.trajectory import unscored
from clawgym_jax.pool import Pool
from tests.pool.samples import trajectory


def test_p26(tmp_path):
  pool = Pool.open(f"sqlite:///{tmp_path}/pool.db")
  pool.add_group("g", "train", "t", 4, max_attempts=3)
  attempts = 0
  while pool.pending("train"):
    attempt = pool.claim("train", "w", 60)
    pool.complete(trajectory(attempt, unscored("model_call: refused")))
    attempts += 1
    assert attempts <= 12
  assert attempts == 12
  counts = pool.counts("train")
  assert (counts["dead"], counts["unscored"]) == (1, 4)
  assert pool.dropped("train") == {"model_call: refused": 12}


def test_what_no_other_attempt_changes_is_not_made_again(tmp_path):
  for number, cause in enumerate(("requires: web", "bad_task: gone", "network: open")):
    pool = Pool.open(f"sqlite:///{tmp_path}/{number}.db")
    pool.add_group("g", "train", "t", 2, max_attempts=3)
    for _ in range(2):
      pool.complete(trajectory(pool.claim("train", "w", 60), unscored(cause)))
    assert pool.pending("train") == 0
    counts = pool.counts("train")
    assert (counts["unscored"], counts["refilled"], counts["dead"]) == (2, 0, 1)
