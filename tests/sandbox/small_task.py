"""A small task, whole and solvable, for the tests of everything around tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clawgym_jax.contracts.task import SolutionCall, Task, save_task

CHECK = '''
import pathlib
def grade(workspace, final_message, transcript):
  path = pathlib.Path(workspace) / "out.txt"
  right = path.is_file() and path.read_text() == "7\\n"
  return {"right": float(right), "said": float("sum is 7" in final_message)}
'''


def make_task(directory: Path, check: str = CHECK, **fields: Any) -> Task:
  """Writes the task 3 + 4 = 7 to `directory`, with another check if given."""
  task = Task(
      id=directory.name,
      instruction="Add the numbers in data/in.txt and write the sum to out.txt.",
      family="sum",
      split="train",
      category="files",
      operations=("sum",),
      **fields,
  )
  return save_task(
      directory,
      task,
      workspace={"data/in.txt": b"3\n4\n"},
      checks={"check.py": check.encode()},
      calls=[
          SolutionCall("read", {"path": "data/in.txt"}),
          SolutionCall("write", {"path": "out.txt", "content": "7\n"}),
      ],
      final_message="The sum is 7.",
  )
