"""A rubric in hand is whole, and enters an outcome by one way alone."""

import json

import pytest

from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.rubric import (
    LEVELS,
    judged,
    read_rubric,
    rubric_record,
    weighted,
)
from clawgym_jax.contracts.task import Reference, Task, load_task, save_task
from clawgym_jax.contracts.trajectory import (
    RUBRIC_UNJUDGED,
    awaiting_rubric,
    scored,
    truncated,
    unscored,
)
from tests.contracts.rubrics import criterion

TWO = (criterion(weight=3.0), criterion("form", file_path="out/a.md"))


def saved(directory, rubric):
  return save_task(
      directory,
      Task("t", "Write out/a.md.", "f", "train", "c", ("o",)),
      workspace={"a.txt": b"1\n"},
      checks={"check.py": b"def grade(w, f, t):\n  return {'a': 0.0}\n"},
      turns=[Reference([], "Done.")],
      rubric=rubric,
  )


def test_a_task_has_its_rubric_or_none(tmp_path):
  assert saved(tmp_path / "t", TWO).rubric() == TWO
  assert saved(tmp_path / "u", ()).rubric() == ()
  assert not (tmp_path / "u" / "rubric.json").exists()
  for wrong in (TWO * 5, (TWO[0], TWO[0])):
    with pytest.raises(RecordError, match="the rubric has"):
      saved(tmp_path / "v", wrong)
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"file_path": "/etc/passwd"}, "no path inside"),
        ({"file_path": "../a"}, "no path inside"),
        ({"file_path": 3}, "no path inside"),
        ({"criterion": " "}, "criterion must be a text"),
        ({"name": ""}, "name must be a text"),
        ({"name": "a\ud800"}, "name must be a text"),
        ({"scores": {"0": "no", "1": "yes"}}, "scores must say"),
        ({"scores": {**dict.fromkeys(LEVELS, "x"), "0.5": 3}}, "level 0.5"),
        ({"weight": 0}, "weight 0"),
        ({"weight": True}, "weight True"),
        ({"levels": []}, "levels"),
        ({"name": None}, "name must be a text"),
    ],
)
def test_what_is_wrong_with_a_criterion_is_named(tmp_path, change, message):
  saved(tmp_path / "t", TWO)
  path = tmp_path / "t" / "rubric.json"
  first, second = rubric_record(TWO)
  path.write_text(json.dumps([first, {**second, **change}]))
  with pytest.raises(RecordError, match=f"criterion 2.*{message}"):
    load_task(tmp_path / "t")


@pytest.mark.parametrize("text", ["{", "{}", "[]", "[3]", "null"])
def test_what_is_no_rubric_is_refused(tmp_path, text):
  (tmp_path / "rubric.json").write_text(text)
  with pytest.raises(RecordError, match="rubric.json"):
    read_rubric(tmp_path / "rubric.json")


def test_a_judge_s_levels_enter_the_outcome_of_the_checks():
  waiting = awaiting_rubric(scored(0.5, {"a": 0.5}))
  assert (waiting.code, waiting.score, waiting.cause) == (0.5, None, RUBRIC_UNJUDGED)
  assert waiting.awaits_rubric
  whole = judged(waiting, TWO, {"tone": 1.0, "form": 0.25})
  assert whole.rubric == pytest.approx((3 * 1.0 + 0.25) / 4)
  assert whole.score == pytest.approx(0.7 * 0.5 + 0.3 * whole.rubric)
  assert (whole.status, whole.cause, whole.checks) == ("scored", None, {"a": 0.5})
  assert whole.criteria == {"tone": 1.0, "form": 0.25} and not whole.awaits_rubric
  best = judged(awaiting_rubric(scored(1.0)), TWO, {"tone": 1.0, "form": 1.0})
  assert best.score == 1.0
  cut = judged(awaiting_rubric(truncated("turn_limit", 0.0)), TWO[:1], {"tone": 1.0})
  assert (cut.status, cut.cause) == ("truncated", "turn_limit")
  assert cut.score == pytest.approx(0.3)


def test_what_a_judge_left_out_or_made_up_is_refused():
  for values in ({}, {"tone": 1.0}, {"tone": 1.0, "form": 0.3}, {"tone": 1, "x": 1}):
    with pytest.raises(RecordError):
      judged(awaiting_rubric(scored(0.5)), TWO, values)
  with pytest.raises(RecordError, match="not 1 to"):
    rubric_record(())
  with pytest.raises(RecordError, match="judged were"):
    weighted((), {})
  with pytest.raises(RecordError, match="after the checks"):
    judged(unscored("platform"), TWO, {"tone": 1.0, "form": 1.0})
