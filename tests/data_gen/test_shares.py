"""What a set is made of, and which of its goals it misses."""

from __future__ import annotations

import pytest

from clawgym_jax.contracts.task import SolutionCall
from data_gen.audit import report
from data_gen.audit.shares import ENOUGH, GOALS, shares, used_inputs
from data_gen.compose import compose
from data_gen.compose.families import families
from data_gen.compose.setting import Setting
from data_gen.draft import exec_call, read_call


def test_inputs_are_what_calls_name():
  files = dict.fromkeys(
      ("a.csv", "data/b.csv", "mail/in/1.eml", "mail/in/2.eml", "data/x", "note.md"), b""
  )
  named = lambda *calls: used_inputs(files, calls)
  assert named(read_call("a.csv")) == {"a.csv"}
  assert named(read_call("/workspace/data/b.csv")) == {"data/b.csv"}
  assert named(exec_call("cat ./a.csv >out.txt; wc -l<data/b.csv")) == {
      "a.csv", "data/b.csv",
  }  # fmt: skip
  glob = exec_call("python3 -c 'print(glob.glob(\"mail/in/*.eml\"))'")
  assert named(glob) == named(exec_call("ls mail/in")) == {
      "mail/in/1.eml", "mail/in/2.eml",
  }  # fmt: skip
  assert named(exec_call("find . -type f | sort"), exec_call("data = x")) == set()
  assert named(SolutionCall("write", {"path": "new.md", "content": "n"})) == set()


@pytest.mark.parametrize("number", [0, 100, 200, 300, 400])
def test_the_inputs_of_composed_tasks_are_those_of_the_work(number):
  """Whatever lies beside the work is not counted."""
  graph = families("train")[number % len(families("train"))].graph
  parts = (compose.build(graph, Setting(f"s {n}", "train")) for n in range(60))
  part = next(p for p in parts if p)
  found = used_inputs(part.workspace, part.calls)
  assert found
  roots = {path.split("/")[0] for path in found}
  beside = {p for p in part.workspace if p.split("/")[0] not in roots}
  assert found <= set(part.workspace) - beside


def _verdict(family: int, turns: int = 1, hazard: str = "none", **work) -> dict:
  work = {"category": f"c{family % 9}", "calls": 12, "tools": 3, "inputs": 3} | work
  return {
      "verdict": "admitted", "family": f"f{family}", "causes": [], "attacks": {},
      "idle": [], "mutants": 12, "survivors": [], "reseeded": True, "work": work,
      "turns": turns, "hazard": hazard, "criteria": 3 * (family % 4 == 0),
  }  # fmt: skip


def test_a_set_that_meets_its_goals():
  verdicts = {
      str(n): _verdict(n, 1 + (n % 10 == 0), "none" if n % 10 else "secret")
      for n in range(ENOUGH)
  }
  found = report.figures(verdicts)
  assert found["missed"] == [] and found["shares"] == {
      "tasks": ENOUGH, "families": ENOUGH, "largest_family": 0.005,
      "largest_category": 0.115, "median_calls": 12, "median_tools": 3,
      "median_inputs": 3, "from_3_inputs": 1.0,
      "turns": {"1": 180, "2": 20}, "hazards": {"none": 180, "secret": 20},
      "rubrics": 50, "criteria": 150,
  }  # fmt: skip
  assert "three input files" in report.printed(found)


def test_each_goal_that_is_missed_is_named_and_small_sets_are_spared():
  verdicts = {
      str(n): _verdict(1, calls=2, tools=1, inputs=1) for n in range(ENOUGH)
  }
  for verdict in verdicts.values():
    verdict["survivors"] = ["a: undone"]
  found = report.figures(verdicts)
  assert len(found["missed"]) == len(GOALS)
  assert "tasks of the largest family 100.0%, at most 1.0% is wanted" in found["missed"]
  assert "calls of a solution, median 2, at least 8 is wanted" in found["missed"]
  assert "misses a goal: wrong edits" in report.printed(found)
  verdicts.popitem()
  few = report.figures(verdicts)
  assert few["missed"] == [] and few["shares"]["tasks"] == ENOUGH - 1


def test_rejected_tasks_and_those_of_no_work_do_not_count():
  sound = _verdict(1)
  verdicts = {
      "a": sound, "b": {**sound, "verdict": "rejected", "causes": ["x"]},
      "c": {"verdict": "rejected", "causes": ["broken"]},
  }  # fmt: skip
  assert shares(verdicts)["tasks"] == 1
  assert shares({}) == {} and report.figures({})["shares"] == {}
