"""Every family, in both splits: solvable, fair to a small model, not cheatable."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clawgym_jax.contracts.task import Task
from data_gen import voice
from data_gen.draft import REGISTRY
from data_gen.compact import make_task
from tests.data_gen import local_agent

FAMILIES = sorted(REGISTRY)
# Short commands and flags that every command pattern may use.
SHELL = frozenset("mv c C d e F g i l p s u".split())


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> list[Task]:
  """Two tasks of each family in each split."""
  folder = tmp_path_factory.mktemp("tasks")
  return [
      make_task(folder / f"{split}-{name}-{index}", REGISTRY[name], 7, split, index)
      for name in FAMILIES
      for split in ("train", "heldout")
      for index in range(2)
  ]


def test_the_catalogue_is_broad():
  assert len(FAMILIES) >= 14
  assert len({op for f in REGISTRY.values() for op in f.operations}) >= 10
  for family in REGISTRY.values():
    assert len(set(family.templates)) == len(family.templates) >= 6, family.name


def test_solutions_solve_and_every_literal_was_given(tasks, tmp_path):
  for i, task in enumerate(tasks[::2]):  # one of each family and split
    root = local_agent.copy_workspace(task, tmp_path / f"{i}")
    values = local_agent.grade(task, root)
    assert not any(values.values()), (task.family, "null", values)
    vocabulary = REGISTRY[task.family].vocabulary
    seen = set(_runs(task.instruction))
    for call, result in local_agent.replay(task, root):
      for word in _runs(" ".join(_strings(call.arguments))):
        given = word in SHELL or word in vocabulary or word in seen
        assert given or _field(word) in seen, (task.family, word, task.instruction)
      seen.update(_runs(result))
    values = local_agent.grade(task, root)
    assert all(v == 1.0 for v in values.values()), (task.family, "oracle", values)


def test_a_harmed_bystander_costs_only_the_side_condition(tasks, tmp_path):
  for i, task in enumerate(tasks[::4]):
    root = local_agent.copy_workspace(task, tmp_path / f"{i}")
    local_agent.replay(task, root)
    (root / "notes" / "team.txt").write_text("gone\n")
    values = local_agent.grade(task, root)
    assert values.pop("done_and_rest_unchanged") == 0.0
    assert all(v == 1.0 for v in values.values()), (task.family, values)


def test_instructions_and_calls_are_short(tasks):
  for task in tasks:
    words = len(task.instruction.split())
    assert voice.MIN_WORDS <= words <= voice.MAX_WORDS, (words, task.instruction)
    assert "{" not in task.instruction, task.instruction
    assert 3 <= len(_files(task.workspace)) <= 8, task.family
    (turn,) = task.reference()
    assert len(turn.calls) == REGISTRY[task.family].calls
    for call in turn.calls:
      text = " ".join(_strings(call.arguments))
      assert len(text) < 150, text
      assert not set('"\\\n') & set(text), text


@pytest.mark.slow
def test_writing_anything_to_every_path_scores_zero(tasks, tmp_path):
  """Empty files, the prompt, and each input copied to every path."""
  for i, task in enumerate(tasks[::2]):
    inputs = _files(task.workspace)
    named = _named(task)
    root = local_agent.copy_workspace(task, tmp_path / f"{i}")
    places = [root / path for path in sorted(named - inputs)]
    cheap = [(task.workspace / path).read_bytes() for path in sorted(inputs)]
    for content in (*cheap, b"", task.instruction.encode()):
      for place in places:
        if not place.is_dir():
          place.parent.mkdir(parents=True, exist_ok=True)
          place.write_bytes(content)
      values = local_agent.grade(task, root)
      assert not any(values.values()), (task.family, content[:40], values)
      if content not in cheap:  # the inputs too
        for path in sorted(named | inputs):
          (root / path).write_bytes(content)
        values = local_agent.grade(task, root)
        assert not any(values.values()), (task.family, content[:40], values)


def _named(task: Task) -> set[str]:
  """The files that the instruction or the checks name."""
  spec = json.loads((task.checks / "expected.json").read_text())
  paths = set(re.findall(r"[\w-]+(?:/[\w-]+)*\.\w+(?:\.\w+)?", task.instruction))
  return paths | {d["path"] for d in spec["deliverables"].values()}


def _files(folder: Path) -> set[str]:
  return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def _runs(text: str) -> list[str]:
  return re.findall(r"[A-Za-z0-9]+", text)


def _field(word: str) -> str:
  """The number in a flag such as -f3."""
  return word.removeprefix("f") if re.fullmatch(r"f\d+", word) else word


def _strings(value) -> list[str]:
  if isinstance(value, str):
    return [value]
  parts = value.values() if isinstance(value, dict) else value
  return [text for part in parts for text in _strings(part)]
