"""P12: a session of n turns takes O(n) bytes."""

import random
import sqlite3

from clawgym_jax.contracts.trajectory import Step
from clawgym_jax.pool import Pool


def test_p12(tmp_path):
  pool = Pool.open(f"sqlite:///{tmp_path}/pool.db")
  pool.add_group("g", "train", "t", 1)
  attempt = pool.claim("train", "w", 60)
  stored = sqlite3.connect(tmp_path / "pool.db")
  rng = random.Random(0)
  sizes = []
  for turn in range(100):
    ids = [rng.randrange(32000) for _ in range(200)]
    pool.append_step(
        attempt.trajectory_id,
        Step(
            step_id=f"s{turn}",
            parent_id=f"s{turn - 1}" if turn else None,
            messages=[{"role": "tool", "content": " ".join(map(str, ids))}],
            response={"role": "assistant", "content": "x"},
            finish_reason="stop",
            prompt_ids=ids,
            response_ids=ids[:50],
            logprobs=[rng.random() for _ in range(50)],
            untempered_logprobs=[rng.random() for _ in range(50)],
            policy_versions=[0] * 50,
        ),
    )
    sizes.append(stored.execute("SELECT sum(length(record)) FROM steps").fetchone()[0])
  first, second = sizes[49], sizes[99] - sizes[49]
  assert second < 1.1 * first
