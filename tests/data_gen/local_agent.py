"""Replays a task's solution in a plain folder, to see its tool results."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clawgym_jax.contracts.task import SolutionCall, Task
from data_gen.compose import checker
from data_gen.compose.part import Part, expected

_GRADE = """
import json, sys
sys.path.insert(0, ".")
import check
print(json.dumps(check.grade(sys.argv[1], sys.argv[2], [])))
"""


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
  """What the checks say, run as in a sandbox: in a process of their own."""
  message = task.reference()[-1].final_message
  said = subprocess.run(
      [sys.executable, "-IBSc", _GRADE, str(root), message],
      cwd=task.checks,
      capture_output=True,
      text=True,
      timeout=60,
      check=True,
  )
  return json.loads(said.stdout)


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
