"""The denominator: every planned attempt is counted once, whatever happened."""

import random

import pytest

from clawgym_jax.contracts import trajectory as contract
from clawgym_jax.contracts.errors import RecordError
from eval import summary
from tests.eval import invented
from tests.sandbox.small_task import TURNS, make_turns_task

LOST = contract.unscored("gateway: upstream did not answer")


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
  return invented.make_suite(tmp_path_factory.mktemp("suite"), per_family=1)[:4]


@pytest.fixture
def attempt(tokenizer):
  def build(task, outcome, sample=0, attempt=0):
    return invented.make_trajectory(
        task, "claw", sample, outcome, random.Random(1), tokenizer, attempt=attempt
    )

  return build


def test_three_outcomes_add_up_to_planned(suite, attempt):
  a, b, c, d = suite
  result = summary.summarise("sft", "claw", suite, 1, [
      attempt(a, contract.scored(1.0)),
      attempt(b, contract.truncated("turn limit", 0.5)),
      attempt(c, LOST),
  ])
  assert [result[k] for k in ("planned", "scored", "truncated", "unscored")] == [4, 1, 1, 2]
  assert result["mean"] == 0.75
  assert result["success"]["rate"] == 0.5
  assert result["by_cause"] == {
      "truncated": {"turn limit": 1},
      "unscored": {LOST.cause: 1, summary.NOT_ATTEMPTED: 1},
  }
  assert sum(f["planned"] for f in result["families"].values()) == 4
  assert result["families"][d.family]["mean"] is None
  assert result["families"][d.family]["unscored"] == 1


def test_unscored_attempts_move_no_statistic(suite, attempt):
  a, b, *_ = suite
  whole = [attempt(t, contract.scored(s), i) for t, s in ((a, 1.0), (b, 0.0)) for i in (0, 1)]
  less = summary.summarise("x", "claw", [a, b], 2, whole)
  more = summary.summarise("x", "claw", [a, b], 3, whole + [attempt(a, LOST, 2), attempt(b, LOST, 2)])
  for key in ("mean", "interval", "success"):
    assert less[key] == more[key]
  assert more["unscored"] == 2


def test_a_sample_counts_once(suite, attempt):
  a = suite[0]
  twice = [attempt(a, contract.scored(1.0)), attempt(a, contract.scored(0.0), attempt=1)]
  with pytest.raises(RecordError, match="again"):
    summary.summarise("x", "claw", [a], 1, twice)


def test_nothing_scored_is_unknown_not_zero(suite, attempt):
  result = summary.summarise("x", "claw", suite, 1, [attempt(t, LOST) for t in suite])
  assert result["mean"] is None and result["interval"] is None
  assert result["success"]["rate"] is None and result["success"]["interval"] is None
  assert result["unscored"] == result["planned"] == 4


def test_a_foreign_trajectory_is_refused(suite, attempt):
  with pytest.raises(RecordError, match="not planned"):
    summary.summarise("x", "claw", suite[1:], 1, [attempt(suite[0], contract.scored(1.0))])


def test_pass_at_k_of_several_samples(suite, attempt):
  a, b, *_ = suite
  trajectories = [attempt(a, contract.scored(float(i == 0)), i) for i in range(4)]
  trajectories += [attempt(b, contract.scored(0.0), i) for i in range(4)]
  result = summary.summarise("x", "claw", [a, b], 4, trajectories)
  assert {k: v["value"] for k, v in result["pass_at_k"].items()} == {
      "1": 0.125, "2": 0.25, "4": 0.5}


def test_the_suite_hash_follows_contents_not_order(suite):
  assert summary.suite_hash(suite) == summary.suite_hash(suite[::-1])
  assert summary.suite_hash(suite) != summary.suite_hash(suite[:3])


def test_what_waits_for_a_judge_has_no_score_and_is_counted(suite, attempt):
  a, b, c, _ = suite
  waiting = [
      attempt(b, contract.awaiting_rubric(contract.scored(1.0))),
      attempt(c, contract.awaiting_rubric(contract.truncated("turn limit", 0.0))),
  ]
  whole = summary.summarise("x", "claw", [a, b, c], 1, [
      attempt(a, contract.scored(0.5)), *waiting
  ])
  assert [whole[k] for k in ("planned", "scored", "truncated", "unscored")] == [3, 2, 1, 0]
  assert whole["rubrics_to_judge"] == 2
  assert whole["mean"] == 0.5 and whole["code"]["mean"] == 0.5
  assert whole["interval"] is None and whole["code"]["interval"] is not None
  assert whole["success"]["rate"] == 0.0
  assert whole["tasks"][b.id]["scores"] == [] and whole["tasks"][b.id]["code"] == [1.0]
  assert whole["families"][b.family]["rubrics_to_judge"] >= 1
  alone = summary.summarise("x", "claw", [a], 1, [attempt(a, contract.scored(0.5))])
  assert alone["rubrics_to_judge"] == 0 and alone["code"]["mean"] == alone["mean"]


def test_all_that_the_user_says_is_shown(tmp_path):
  task = make_turns_task(tmp_path / "t")
  result = summary.summarise("x", "oracle", [task], 1, [])
  assert result["tasks"]["t"]["instruction"] == " / ".join(text[:53] for text in TURNS)
