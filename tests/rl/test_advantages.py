"""GRPO and Dr.GRPO against their formulas."""

import numpy as np
import pytest

from clawgym_jax.rl.advantages import group_advantages, has_signal


def test_grpo_is_mean_and_unbiased_std():
  rewards = [0.0, 0.5, 1.0, 1.0]
  expected = (np.array(rewards) - np.mean(rewards)) / (np.std(rewards, ddof=1) + 1e-6)
  np.testing.assert_allclose(group_advantages(rewards), expected, rtol=1e-9)


def test_dr_grpo_leaves_the_scale():
  np.testing.assert_allclose(group_advantages([0.0, 1.0], "dr_grpo"), [-0.5, 0.5])


@pytest.mark.parametrize("rewards", [[1.0] * 4, [0.0, None], [None, None], [0.1 + 0.2] * 3])
def test_no_variance_gives_no_gradient(rewards):
  assert not has_signal(rewards)
  assert all(a in (None, 0.0) for a in group_advantages(rewards))


def test_an_unknown_method_is_an_error():
  with pytest.raises(ValueError, match="unknown"):
    group_advantages([0.0, 1.0], "gae")
