"""What a set of tasks is made of, beside what a large set should be.

A goal is of the set as a whole: one that is missed is named, and rejects no
task. Shares say nothing of a handful, so small sets are only described.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from clawgym_jax.contracts.task import SolutionCall, Task
from sandbox.backends.base import Files

ENOUGH = 200  # tasks of a set that is held against the goals
_FEW_INPUTS = 3
_SKILLS = "skills/"
_WORD = re.compile(r"""[^\s"'`()\[\]{},;:=*?|<>&$]+""")


@dataclass(frozen=True)
class Goal:
  """A figure of a set by its name, and the bounds that it should keep."""

  figure: str
  said: str
  least: float = 0.0
  most: float = float("inf")
  share: bool = True

  def missed(self, value: float) -> str:
    """What to say of `value`, nothing where it is fine."""
    if self.least <= value <= self.most:
      return ""
    bound = self.least if value < self.least else self.most
    word = "at least" if value < self.least else "at most"
    shown = "{:.1%}" if self.share else "{:g}"
    return f"{self.said} {shown.format(value)}, {word} {shown.format(bound)} is wanted"


GOALS = (
    Goal("largest_family", "tasks of the largest family", most=0.01),
    Goal("largest_category", "tasks of the largest category", most=0.125),
    Goal("median_calls", "calls of a solution, median", least=8, share=False),
    Goal("median_tools", "tools of a solution, median", least=3, share=False),
    Goal("from_3_inputs", "tasks that need three input files", least=0.3),
    Goal("with_turns", "tasks of several user turns", least=0.08),
    Goal("with_hazard", "tasks with a hazard", least=0.06),
    Goal("with_rubric", "tasks with a rubric", least=0.2, most=0.3),
    Goal("kill_rate", "wrong edits that lose reward", least=0.97),
)


def work_of(task: Task, initial: Files, calls: Sequence[SolutionCall]) -> dict[str, Any]:
  """What a verdict keeps of a task: how much work it is, and of which kind."""
  return {
      "category": task.category,
      "calls": len(calls),
      "tools": len({call.name for call in calls}),
      "inputs": len(used_inputs(initial, calls)),
  }


def used_inputs(initial: Files, calls: Sequence[SolutionCall]) -> set[str]:
  """What the work is done on: files of the workspace that the calls name, or whose
  folder they name.

  A folder counts where it is written as a path, with a slash: a word alone may
  be a name in a program. A git repository is one input, whatever it is kept in;
  files beside its store count where a call names them. Skills say how the work
  is to be done, so they are none.
  """
  named = {
      word.removeprefix("./").removeprefix("/workspace/")
      for call in calls
      for value in call.arguments.values()
      for word in _WORD.findall(str(value))
  }
  folders = {word.rstrip("/") for word in named if "/" in word.strip(".")}
  repositories = {found for path in initial if (found := _repository(path))}
  used = set()
  for path in initial:
    above = {str(parent) for parent in PurePosixPath(path).parents}
    if path.startswith(_SKILLS) or not (path in named or above & folders):
      continue
    within = _repository(path) or max(above & repositories, key=len, default="")
    used.add(path if path in named else within or path)
  return used


def _repository(path: str) -> str:
  """The git repository in whose store a file is; nothing for all other files."""
  parts = path.split("/")
  for at, part in enumerate(parts[:-1]):
    if part.endswith(".git"):
      return "/".join(parts[: at if part == ".git" else at + 1]) or "."
  return ""


def shares(verdicts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
  """The figures of the admitted tasks that say of what they are."""
  of = [v for v in verdicts.values() if v["verdict"] == "admitted" and "work" in v]
  if not of:
    return {}
  work = [v["work"] for v in of]
  return {
      "tasks": len(of),
      "families": len({v["family"] for v in of}),
      "largest_family": _largest(v["family"] for v in of),
      "largest_category": _largest(w["category"] for w in work),
      "median_calls": statistics.median(w["calls"] for w in work),
      "median_tools": statistics.median(w["tools"] for w in work),
      "median_inputs": statistics.median(w["inputs"] for w in work),
      "from_3_inputs": _share(w["inputs"] >= _FEW_INPUTS for w in work),
      "turns": _counted(v["turns"] for v in of),
      "hazards": _counted(v["hazard"] for v in of),
      "rubrics": sum(v["criteria"] > 0 for v in of),
      "criteria": sum(v["criteria"] for v in of),
  }


def with_rubric(found: Mapping[str, Any]) -> float:
  """The share of the tasks that are judged by a rubric, too, of `shares`."""
  return found["rubrics"] / found["tasks"]


def missed(found: Mapping[str, Any]) -> list[str]:
  """The goals that an audit's figures miss; none of a small set. What attacks may
  get is no goal: a task that gives them anything is rejected."""
  set_ = found["shares"]
  if set_.get("tasks", 0) < ENOUGH:
    return []
  figures = {
      **set_,
      "with_turns": 1 - set_["turns"].get("1", 0) / set_["tasks"],
      "with_hazard": 1 - set_["hazards"].get("none", 0) / set_["tasks"],
      "with_rubric": with_rubric(set_),
      "kill_rate": found["mutation"]["admitted"]["kill_rate"],
  }
  told = (
      goal.missed(figures[goal.figure])
      for goal in GOALS
      if figures[goal.figure] is not None
  )
  return [said for said in told if said]


def _share(told: Iterable[bool]) -> float:
  values = list(told)
  return round(sum(values) / len(values), 4)


def _counted(values: Iterable[str | int]) -> dict[str, int]:
  return {str(value): n for value, n in sorted(Counter(values).items())}


def _largest(names: Iterable[str]) -> float:
  counts = Counter(names)
  return round(max(counts.values()) / counts.total(), 4)
