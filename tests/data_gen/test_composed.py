"""Composed tasks: many families, none often, each solved by its calls alone."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from clawgym_jax.contracts.task import Task
from data_gen.compose import make
from data_gen.compose.families import families
from data_gen.taxonomy import CATEGORY_OF, SCENARIOS
from sandbox.backends import open_sandbox
from sandbox.backends.base import gather
from sandbox.harnesses import HarnessContext, load
from sandbox.verify import Verifier
from sandbox.verify.checks import State

_EVERY = 61  # of the training families, one is tried


def test_the_families_are_many_and_a_part_is_reserved():
  train, heldout = families("train"), families("heldout")
  assert len(train) + len(heldout) >= 400 and len(heldout) >= 60
  names = [family.graph.name for family in (*train, *heldout)]
  assert len(set(names)) == len(names)
  assert {op for f in (*train, *heldout) for op in f.operations} <= CATEGORY_OF.keys()
  sources = Counter(f.graph.source for f in train)
  assert max(sources.values()) < 0.08 * len(train)


def test_families_and_scenarios_take_turns(tmp_path):
  count = len(families("train"))
  chosen = Counter(make.choose_family(0, "train", i).number for i in range(3 * count))
  assert len(chosen) == count and set(chosen.values()) == {3}
  made = [make.make(tmp_path / f"{i}", 0, "train", i) for i in range(len(SCENARIOS))]
  assert {task.category for task in made} == set(SCENARIOS)


async def judged(task: Task, files: dict[str, bytes]) -> list[float]:
  """The scores of doing nothing and of the solution."""
  async with open_sandbox(run_id="test", now=task.now) as sandbox:
    await sandbox.start(files)
    states = []
    for name in ("null", "oracle"):
      result = await load(name).run(HarnessContext(task, sandbox))
      states.append(
          State(await sandbox.snapshot(), result.final_message, result.transcript)
      )
  async with Verifier(task) as verifier:
    return [(await verifier.judge(state)).score for state in states]


def test_the_calls_solve_a_task_and_the_same_request_over_other_records(tmp_path):
  tried = 0
  for index in range(0, len(families("train")), _EVERY):
    task = make.make(tmp_path / f"{index}", 5, "train", index)
    if task.requires:
      continue
    files = gather(task.workspace)
    scores = asyncio.run(judged(task, files))
    assert scores == [0.0, 1.0], task.family
    again = make.rebuild(task, 1)
    assert again is not None, task.family
    other, checks, _ = again
    assert other != files, task.family
    for name, data in checks.items():
      (task.checks / name).write_bytes(data)
    assert asyncio.run(judged(task, other)) == [0.0, 1.0], task.family
    tried += 1
  assert tried >= 5


def test_expected_json_names_what_may_change(tmp_path):
  task = make.make(tmp_path / "t", 0, "heldout", 0)
  expected = json.loads((task.checks / "expected.json").read_text())
  assert expected["unchanged"] and expected["deliverables"]
