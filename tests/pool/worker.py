"""A producer or consumer as a process of its own, to be killed by the tests.

python -m tests.pool.worker produce|hold|consume URL OWNER

`produce` works off the channel; `hold` claims an attempt, appends one step,
says so and sleeps; `consume` leases and acknowledges until all is done and
prints each acknowledged group; `lease` leases all, says so and sleeps.
"""

import sys
import time

from clawgym_jax.pool import Pool
from tests.pool.samples import step, trajectory


def main() -> None:
  role, url, owner = sys.argv[1:]
  pool = Pool.open(url)
  if role == "produce":
    while pool.pending("train"):
      attempt = pool.claim("train", owner, 1.0)
      if attempt is None:
        time.sleep(0.02)
        continue
      for number in range(3):
        pool.append_step(attempt.trajectory_id, step(number))
      if pool.complete(trajectory(attempt)):
        print(attempt.group_id, attempt.sample_index, flush=True)
  elif role == "hold":
    attempt = pool.claim("train", owner, 0.5)
    pool.append_step(attempt.trajectory_id, step(0))
    print(attempt.trajectory_id, flush=True)
    time.sleep(60)
  elif role == "lease":
    groups = pool.lease_groups("train", 100, owner, 0.5)
    pool.ack([groups[0].group_id], owner)
    print(groups[0].group_id, flush=True)
    time.sleep(60)
  elif role == "consume":
    while pool.counts("train")["done"] < pool.counts("train")["groups"]:
      for group in pool.lease_groups("train", 2, owner, 5.0):
        pool.ack([group.group_id], owner)
        print(group.group_id, flush=True)
      time.sleep(0.01)


if __name__ == "__main__":
  main()
