"""Ids and log-probs have one length, outcomes one of three forms."""

import json

import pytest

from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.trajectory import (
    Outcome,
    Step,
    Trajectory,
    awaiting_rubric,
    hybrid,
    scored,
    to_record,
    trajectory_from_record,
    truncated,
    unscored,
)


def step(step_id, parent_id=None, ids=(5, 6), **changes):
  columns = {
      "prompt_ids": [1, 2],
      "response_ids": list(ids),
      "logprobs": [-0.5] * len(ids),
      "untempered_logprobs": [-0.6] * len(ids),
      "policy_versions": [3] * len(ids),
  }
  return Step(
      step_id=step_id,
      parent_id=parent_id,
      messages=[{"role": "user", "content": step_id}],
      response={"role": "assistant", "content": "ok " + step_id},
      finish_reason="stop",
      **{**columns, **changes},
  )


@pytest.mark.parametrize("column", ["logprobs", "untempered_logprobs", "policy_versions"])
@pytest.mark.parametrize("value", [[-0.5], [-0.5] * 3, None])
def test_a_length_that_differs_is_an_error(column, value):
  with pytest.raises(RecordError, match=column):
    step("a", **{column: value})


def test_ids_come_whole_or_not_at_all():
  with pytest.raises(RecordError, match="without prompt ids"):
    step("a", prompt_ids=None)
  with pytest.raises(RecordError, match="without response ids"):
    step("a", response_ids=None)
  with pytest.raises(RecordError, match="not finite"):
    step("a", logprobs=[float("nan"), 0.0])


def test_a_tree_is_read_along_its_paths():
  steps = [step("a"), step("b", "a"), step("c", "a"), step("d", fork_cause="x")]
  trajectory = Trajectory("t", "task", "g", 0, 0, "claw", steps, scored(1.0))
  assert [s.step_id for s in trajectory.leaves()] == ["b", "c", "d"]
  assert [s.step_id for s in trajectory.chain(steps[2])] == ["a", "c"]
  assert [m["content"] for m in trajectory.conversation(steps[1])] == [
      "a", "ok a", "b", "ok b",
  ]  # fmt: skip
  again = trajectory_from_record(json.loads(json.dumps(to_record(trajectory))))
  assert again == trajectory


def test_a_score_is_whole_or_absent():
  assert Outcome("scored", hybrid(1.0, 0.5), 1.0, 0.5).score == 0.85
  waiting = awaiting_rubric(truncated("turn_limit", 0.5))
  assert (waiting.code, waiting.score, waiting.cause) == (0.5, None, "turn_limit")
  assert waiting.awaits_rubric and not truncated("turn_limit", 0.5).awaits_rubric
  lost = unscored("platform")
  assert awaiting_rubric(lost) == lost and not lost.awaits_rubric
  again = Outcome(**json.loads(json.dumps(to_record(waiting))))
  assert again == waiting


def test_outcomes():
  assert truncated("turn_limit", 0.5).score == 0.5
  assert unscored("platform").score is None
  named = unscored("check_error: what is \udcff?")  # a name that an agent gave a file
  assert named.cause == "check_error: what is \\udcff?"
  for wrong in (
      lambda: scored(1.5),
      lambda: scored(float("nan")),
      lambda: Outcome("unscored", 0.0, cause="x"),
      lambda: Outcome("unscored"),
      lambda: Outcome("truncated", 0.0),
      lambda: Outcome("scored"),
      lambda: Outcome("lost", 0.0),
      lambda: Outcome("scored", 0.5),  # by what?
      lambda: Outcome("scored", 0.5, 1.0),
      lambda: Outcome("scored", None, 1.0),  # and no cause
      lambda: Outcome("scored", 0.4, 1.0, 0.0),
      lambda: Outcome("scored", None, 1.0, 0.5, cause="x"),
      lambda: Outcome("scored", 1.0, 1.0, 1.5),
      lambda: Outcome("unscored", code=1.0, cause="x"),
  ):
    with pytest.raises(RecordError):
      wrong()
