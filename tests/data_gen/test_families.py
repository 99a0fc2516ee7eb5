"""Every family, in both splits: solvable, fair to a small model, not cheatable."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from clawgym_jax.contracts.task import Task, list_tasks, load_task
from data_gen import voice
from data_gen.draft import REGISTRY
from data_gen.synthesize import make_task
from tests.data_gen import local_agent

SPLITS = ("train", "heldout")
FAMILIES = sorted(REGISTRY)


@pytest.fixture(scope="module", params=SPLITS)
def tasks(request, tmp_path_factory) -> list[Task]:
  """Four tasks of each family."""
  folder = tmp_path_factory.mktemp(request.param)
  for name in FAMILIES:
    for index in range(4):
      make_task(folder / f"{name}-{index}", REGISTRY[name], 7, request.param, index)
  return [load_task(path) for path in list_tasks(folder)]


def test_the_catalogue_is_broad():
  assert len(FAMILIES) >= 14
  assert len({op for f in REGISTRY.values() for op in f.operations}) >= 10
  for family in REGISTRY.values():
    assert len(family.templates) >= 6, family.name
    assert len(set(family.templates)) == len(family.templates), family.name


def test_oracle_solves_and_nothing_else_does(tasks, tmp_path):
  for i, task in enumerate(tasks):
    root = local_agent.copy_workspace(task, tmp_path / f"{i}")
    values = local_agent.grade(task, root)
    assert not any(values.values()), (task.family, "null", values)
    local_agent.replay(task, root)
    values = local_agent.grade(task, root)
    assert all(v == 1.0 for v in values.values()), (task.family, "oracle", values)


def test_every_literal_of_a_solution_was_given(tasks, tmp_path):
  for i, task in enumerate(tasks):
    root = local_agent.copy_workspace(task, tmp_path / f"{i}")
    seen = set(_runs(task.instruction))
    vocabulary = REGISTRY[task.family].vocabulary
    for call, result in local_agent.replay(task, root):
      for word in _runs(_strings(call.arguments)):
        given = len(word) < 3 or word in vocabulary or word in seen
        assert given, (task.family, word, task.instruction)
      seen.update(_runs(result))


def test_instructions_and_calls_are_short(tasks):
  for task in tasks:
    words = len(task.instruction.split())
    assert voice.MIN_WORDS <= words <= voice.MAX_WORDS, (words, task.instruction)
    assert 3 <= len(list(_files(task.workspace))) <= 8, task.family
    assert len(task.solution()) == REGISTRY[task.family].calls
    for call in task.solution():
      text = _strings(call.arguments)
      assert len(text) < 150, text
      assert '"' not in text and "\\" not in text and "\n" not in text, text
    assert "{" not in task.instruction, task.instruction


@pytest.mark.parametrize("fill", ["empty", "prompt", "inputs"])
def test_writing_anything_to_every_path_scores_zero(tasks, tmp_path, fill):
  for i, task in enumerate(tasks):
    inputs = sorted(_files(task.workspace))
    contents = {
        "empty": [b""],
        "prompt": [task.instruction.encode()],
        "inputs": [(task.workspace / p).read_bytes() for p in inputs],
    }[fill]
    paths = _named(task) | (set(inputs) if fill != "inputs" else set())
    for n, content in enumerate(contents):
      root = local_agent.copy_workspace(task, tmp_path / f"{i}-{n}")
      for path in paths:
        target = root / path
        if fill == "inputs" and target.exists():
          continue
        if target.is_dir():
          continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
      values = local_agent.grade(task, root)
      assert not any(values.values()), (task.family, fill, values)
      shutil.rmtree(root)


def _named(task: Task) -> set[str]:
  """The paths the instruction and the checks name."""
  import json

  spec = json.loads((task.checks / "expected.json").read_text())
  paths = set(re.findall(r"[\w-]+(?:/[\w-]+)*\.\w+(?:\.\w+)?", task.instruction))
  return paths | {d["path"] for d in spec["deliverables"].values()}


def _files(folder: Path) -> set[str]:
  return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def _strings(value) -> str:
  if isinstance(value, str):
    return value
  if isinstance(value, dict):
    return " ".join(_strings(v) for k, v in value.items())
  return " ".join(_strings(v) for v in value)


def _runs(text: str) -> list[str]:
  return re.findall(r"[A-Za-z0-9]+", text)
