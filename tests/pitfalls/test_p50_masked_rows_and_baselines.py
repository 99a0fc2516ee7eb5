"""P50: an unscored trajectory leaves its siblings' advantages as they were."""

import pytest

from clawgym_jax.rl.advantages import group_advantages


@pytest.mark.parametrize("method", ["grpo", "dr_grpo"])
@pytest.mark.parametrize("at", [0, 2, 4])
def test_an_unscored_trajectory_changes_no_sibling(method, at):
  rewards = [0.0, 1.0, 0.25, 1.0]
  alone = group_advantages(rewards, method)
  with_it = group_advantages([*rewards[:at], None, *rewards[at:]], method)
  assert with_it[at] is None
  assert [a for a in with_it if a is not None] == alone
