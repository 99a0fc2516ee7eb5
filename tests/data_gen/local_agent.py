"""Replays a task's solution in a plain folder, to see its tool results."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from clawgym_jax.contracts.task import SolutionCall, Task
from data_gen.compose import checker
from data_gen.compose.part import Part, expected


def apply(root: Path, call: SolutionCall) -> str:
  """What the tool `call` says, run in `root`."""
  arguments = call.arguments
  if call.name == "exec":
    run = subprocess.run(
        ["bash", "-c", arguments["command"]],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return run.stdout + run.stderr
  path = root / arguments["path"]
  if call.name == "read":
    return path.read_text()
  if call.name == "write":
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(arguments["content"])
    return "written"
  text = path.read_text()
  for edit in arguments["edits"]:
    assert text.count(edit["oldText"]) == 1, f"ambiguous: {edit}"
    text = text.replace(edit["oldText"], edit["newText"])
  path.write_text(text)
  return "edited"


def copy_workspace(task: Task, root: Path) -> Path:
  shutil.copytree(task.workspace, root)
  return root


def replay(task: Task, root: Path) -> list[tuple[SolutionCall, str]]:
  """Each call of the solution with what came back."""
  calls = [call for turn in task.reference() for call in turn.calls]
  return [(call, apply(root, call)) for call in calls]


def grade(task: Task, root: Path) -> dict[str, float]:
  path = task.checks / "check.py"
  spec = importlib.util.spec_from_file_location("check", path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module.grade(str(root), task.reference()[-1].final_message, [])


def graded(
    root: Path, part: Part, calls: list[SolutionCall], monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
  """The checks' values after these calls in a plain folder; a call that can't be made
  is passed over."""
  for path, data in part.workspace.items():
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)
  for call in calls:
    with contextlib.suppress(OSError, AssertionError):
      apply(root, call)
  place = root.with_suffix(".json")
  place.write_text(json.dumps(expected(part)))
  monkeypatch.setattr(checker, "EXPECTED", place)
  return checker.grade(str(root), "Done.", [])
