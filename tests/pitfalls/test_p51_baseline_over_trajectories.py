"""P51: advantages don't depend on how a trajectory is cut into model calls."""

import numpy as np

from clawgym_jax.rl.rows import experience
from tests.rl.groups import group, step, trajectory


def advantages(cut):
  """`cut`: into how many turns the first trajectory's eight tokens are cut."""
  size = 8 // cut
  steps = [
      step(f"s{i}", [100 + i], [7] * size, parent=f"s{i - 1}" if i else None)
      for i in range(cut)
  ]
  made = experience(
      [
          group(
              trajectory("x", steps, 1.0),
              trajectory("y", [step("s0", [100], [8])], 0.25),
              trajectory("z", [step("s0", [100], [9])], 0.0),
          )
      ],
      row_length=64, advantage="grpo", reward="code", temperature=1.0,
  )  # fmt: skip
  row, = made.rows
  return [set(row.advantage[(row.tokens == t) & (row.loss_weight > 0)]) for t in (7, 8, 9)]


def test_long_and_short_segmentations_give_the_same_advantages():
  reference = advantages(1)
  assert all(len(values) == 1 for values in reference)
  for cut in (2, 4, 8):
    assert advantages(cut) == reference
  np.testing.assert_allclose(sum(v for s in reference for v in s), 0, atol=1e-5)
