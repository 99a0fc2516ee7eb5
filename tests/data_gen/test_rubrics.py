"""Rubrics of composed tasks, and what the audit asks of any."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from clawgym_jax.contracts.task import Reference, Task, save_task
from data_gen.audit.rubric import faults
from data_gen.compose import make, rubrics
from data_gen.compose.chores import CHORES
from data_gen.compose.criteria import FILES, TEMPLATES
from data_gen.compose.families import families
from data_gen.compose.personas import STYLES, persona
from data_gen.compose.setting import Setting
from data_gen.compose.sinks import SINKS
from sandbox.backends.base import gather
from tests.contracts.rubrics import criterion


def drawn(count: int, split: str = "train"):
  """Settings with their parts, over all families in turn, whatever the scenario."""
  known = families(split)
  for index in range(count):
    family = known[index % len(known)]
    for attempt in range(20):
      setting = Setting(f"rubrics {index} {attempt}", split)
      part = make.compose.build(family.graph, setting)
      if part is not None:
        yield setting, part
        break


def test_a_quarter_is_hybrid_whatever_the_other_shares():
  for split in ("train", "heldout"):
    chosen = [rubrics.hybrid(7, split, index) for index in range(7200)]
    assert sum(chosen) == 1800
    for start in range(0, 7000, 50):  # over any 200 in a row
      assert 48 <= sum(chosen[start : start + 200]) <= 52
    for every in (4, 9):  # whether skills or a scenario have their turn
      for place in range(every):
        share = sum(chosen[place::every]) / len(chosen[place::every])
        assert 0.18 < share < 0.32
  assert chosen != [rubrics.hybrid(8, "heldout", index) for index in range(7200)]


def test_templates_are_for_what_there_is():
  known = {*SINKS, *CHORES, *STYLES, "skills", "git", "sent", "event", "job"}
  assert len(TEMPLATES) >= 20
  names = Counter(t.name for t in TEMPLATES)
  assert names.most_common(1)[0][1] == 1
  for template in TEMPLATES:
    assert set(template.of) <= known, template.name
    assert ("{path}" in template.asks) == (template in FILES), template.name
    assert len(set(template.levels)) == 5, template.name


def test_every_template_is_drawn_and_each_file_is_one_that_is_delivered():
  seen: Counter[str] = Counter()
  for setting, part in drawn(240):
    asker = persona(setting)
    for skills in ((), ("one",)):
      found = rubrics.rubric(setting, asker, part, skills)
      assert 2 <= len(found) <= 4 and found[0].name == "closing_true"
      assert found == rubrics.rubric(setting, asker, part, skills)
      again = rubrics.rubric(setting.reseeded(1), asker, part, skills)
      assert again == found  # over other records, too
      delivered = {spec.get("path") for spec in part.deliverables.values()}
      for one in found:
        assert one.file_path == "" or one.file_path in delivered
        assert "{" not in one.criterion
        seen[one.name] += 1
  missing = {t.name for t in TEMPLATES} - set(seen)
  assert not missing


def test_a_task_has_a_rubric_or_not_and_is_else_the_same(tmp_path, monkeypatch):
  index = next(i for i in range(8) if rubrics.hybrid(3, "train", i))
  task = make.make(tmp_path / "with", 3, "train", index)
  assert 2 <= len(task.rubric()) <= 4
  monkeypatch.setattr(rubrics, "hybrid", lambda *_: False)
  plain = make.make(tmp_path / "without", 3, "train", index)
  assert plain.rubric() == ()
  mine, other = gather(task.root), gather(plain.root)
  assert set(mine) - set(other) == {"rubric.json"}
  assert {n for n in other if mine[n] != other[n]} == {"task.json"}  # its hash


CHECKS = ("out.right", "inputs_unchanged", "rows_sorted", "ok")


@pytest.mark.parametrize(
    "change, cause",
    [
        ({}, None),
        ({"file_path": "out.md"}, None),
        ({"file_path": "in.csv"}, "tone looks at in.csv, which no solution hands over"),
        ({"file_path": "no.md"}, "tone looks at no.md, which no solution hands over"),
        ({"name": "ok"}, "ok asks again what the check ok judges"),
        (
            {"criterion": "Are the inputs all unchanged?"},
            "tone asks again what the check inputs_unchanged judges",
        ),
        ({"criterion": "Does it say zanzibar?"}, "tone tells 'zanzibar', which"),
        ({"criterion": "Is 4711 in it?"}, "tone tells '4711', which"),
        ({"criterion": "Does it speak of ann?"}, None),  # the request does, too
    ],
)
def test_the_audit_says_what_is_wrong_with_a_rubric(tmp_path, change, cause):
  expected = {"deliverables": {"out": {"rows": [["zanzibar", "4711", "ann"]]}}}
  task = save_task(
      tmp_path / "t",
      Task("t", "Write out.md on ann.", "f", "train", "c", ("o",)),
      workspace={"in.csv": b"1\n"},
      checks={
          "check.py": b"def grade(w, f, t):\n  return {'a': 0.0}\n",
          "expected.json": json.dumps(expected).encode(),
      },
      turns=[Reference([], "Done.")],
      rubric=[criterion(**{"name": "tone", **change})],
  )
  initial = gather(task.workspace)
  found = list(faults(task, initial, {**initial, "out.md": b"# x\n"}, CHECKS))
  if cause is None:
    assert found == []
  else:
    (one,) = found
    assert one.startswith(f"rubric: {cause}")
