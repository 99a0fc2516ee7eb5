"""Every sampled token is trained once, by exact ids, or counted as dropped."""

import dataclasses

import numpy as np
import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.row import predecessors
from clawgym_jax.contracts.trajectory import (
    Outcome,
    awaiting_rubric,
    scored,
    truncated,
)
from clawgym_jax.rl.rows import experience, reward_of
from tests.rl.groups import group, step, trajectory

SETTINGS = {
    "row_length": 64, "advantage": "dr_grpo", "reward": "code", "temperature": 1.0
}  # fmt: skip


def trained(made):
  """Sorted (context, token, advantage, rollout log-prob) of all rows."""
  found = []
  for row in made.rows:
    before = predecessors(row.end)
    for t in np.flatnonzero(row.loss_weight):
      path, at = [], before[t]
      while at >= 0:
        path.append(int(row.tokens[at]))
        at = before[at]
      found.append((
          tuple(reversed(path)), int(row.tokens[t]), float(row.advantage[t]),
          round(float(row.rollout_logprobs[t]), 4),
      ))  # fmt: skip
  return sorted(found)


def test_a_group_is_one_tree_with_its_prompt_once():
  steps = lambda answer: [
      step("a", [1, 2, 3], answer, logprobs=[-0.5, -0.25]),
      step("b", [9], [4], parent="a", logprobs=[-2.0]),
  ]
  made = experience(
      [group(trajectory("x", steps([5, 6]), 1.0), trajectory("y", steps([5, 7]), 0.0))],
      **SETTINGS,
  )
  assert len(made.rows) == 1
  assert int((made.rows[0].tokens > 0).sum()) == 3 + 2 * 4
  prompt = (1, 2, 3)
  assert trained(made) == sorted([
      (prompt, 5, 0.5, -0.5), (prompt, 5, -0.5, -0.5),
      (prompt + (5,), 6, 0.5, -0.25), (prompt + (5,), 7, -0.5, -0.25),
      (prompt + (5, 6, 9), 4, 0.5, -2.0), (prompt + (5, 7, 9), 4, -0.5, -2.0),
  ])  # fmt: skip
  assert made.trained_tokens == made.sampled_tokens == 6


def test_forks_and_branches_train_each_sampled_token_once():
  """`b` and `c` both extend `a`; `d` is a new root after a rewritten history."""
  steps = [
      step("a", [1, 2], [3, 4]),
      step("b", [5], [6], parent="a"),
      step("c", [7], [8], parent="a"),
      dataclasses.replace(step("d", [1, 9], [3]), fork_cause="history rewritten"),
  ]
  made = experience(
      [group(trajectory("x", steps, 1.0), trajectory("y", [step("a", [1], [2])], 0.0))],
      **SETTINGS,
  )
  mine = [(context, token) for context, token, a, _ in trained(made) if a > 0]
  assert mine == sorted([
      ((1, 2), 3), ((1, 2, 3), 4), ((1, 2, 3, 4, 5), 6), ((1, 2, 3, 4, 7), 8),
      ((1, 9), 3),
  ])  # fmt: skip
  assert made.sampled_tokens == made.trained_tokens == 6


def test_what_is_not_trained_is_counted_with_its_cause():
  flat = [trajectory(f"z{i}", [step("a", [1], [2, 3])], 1.0) for i in range(2)]
  long = trajectory("x", [step("a", list(range(60)), [7] * 9)], 1.0)
  made = experience(
      [
          group(*flat),
          group(long, trajectory("y", [step("a", [1], [2])], 0.0), unscored=2),
      ],
      **SETTINGS,
  )
  assert made.dropped == {"no signal in the group": 4, "longer than a row": 9}
  assert made.sampled_tokens == made.trained_tokens + made.dropped.total()
  assert made.zero_variance == 1 and made.groups == 2 and made.unscored == 2
  assert made.rewards == [1.0, 1.0, 1.0, 0.0]


def test_no_signal_at_all_gives_no_rows():
  flat = [trajectory(f"z{i}", [step("a", [1], [2])], 0.0) for i in range(2)]
  assert experience([group(*flat)], **SETTINGS).rows == []


def test_rewards_are_code_unless_told_otherwise():
  hybrid = Outcome("scored", 0.7, 1.0, 0.0)
  assert reward_of(hybrid, "code") == 1.0 and reward_of(hybrid, "score") == 0.7
  assert reward_of(truncated("turn_limit", 0.5), "code") == 0.5
  assert reward_of(Outcome("unscored", cause="x"), "code") is None


def test_a_rubric_that_nobody_judged_is_no_zero():
  """By code it is trained as any other; by score it is left out and counted."""
  one, other = (trajectory(n, [step("a", [1], [2])], r) for n, r in (("x", 1.0), ("y", 0.0)))
  waiting = dataclasses.replace(
      trajectory("z", [step("a", [1], [3, 4])], 0.5),
      outcome=awaiting_rubric(scored(0.5)),
  )
  assert reward_of(waiting.outcome, "score") is None
  by_code = experience([group(one, other, waiting)], **SETTINGS)
  assert by_code.rewards == [1.0, 0.0, 0.5] and not by_code.dropped
  by_score = experience([group(one, other, waiting)], **{**SETTINGS, "reward": "score"})
  assert by_score.rewards == [1.0, 0.0]
  assert by_score.dropped == {"rubric not judged": 2}


@pytest.mark.parametrize(
    "wrong", [{"temperature": 0.6}, {"top_p": 0.9}, {"temperature": None}]
)
def test_log_probs_of_another_distribution_are_refused(wrong):
  steps = [step("a", [1], [2], **wrong)]
  both = group(trajectory("x", steps, 1.0), trajectory("y", steps, 0.0))
  with pytest.raises(UserError, match="sampled at"):
    experience([both], **SETTINGS)


def test_text_without_tokens_is_refused():
  text = dataclasses.replace(
      step("a", [1], [2]), prompt_ids=None, response_ids=None, logprobs=None,
      untempered_logprobs=None, policy_versions=None,
  )  # fmt: skip
  both = group(trajectory("x", [text], 1.0), trajectory("y", [text], 0.0))
  with pytest.raises(UserError, match="token ids"):
    experience([both], **SETTINGS)
