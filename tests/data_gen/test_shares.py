"""What a set is made of, and which of its goals it misses."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from clawgym_jax.contracts.task import SolutionCall
from data_gen.audit import report
from data_gen.audit.shares import ENOUGH, GOALS, shares, used_inputs
from data_gen.compose import compose
from data_gen.compose.families import families
from data_gen.compose.part import Part
from data_gen.compose.setting import Setting
from data_gen.compose.surroundings import surroundings
from data_gen.draft import exec_call, read_call


def test_a_repository_is_one_input_and_a_skill_is_none():
  store = ("HEAD", "config", "refs/heads/main", "objects/pack/pack-1.pack")
  tree = ("a.txt", "b.txt", "c.txt", ".git/index")
  files = dict.fromkeys(
      (
          *(f"data/log.git/{path}" for path in store),
          *(f"code/app/{path}" for path in (*tree, *(f".git/{p}" for p in store))),
          "skills/mail/SKILL.md", "skills/sums/SKILL.md", "data/x.csv",
      ),
      b"",
  )  # fmt: skip
  named = lambda *commands: used_inputs(files, [exec_call(c) for c in commands])
  assert named("git -C data/log.git log --reverse") == {"data/log.git"}
  assert named("git -C code/app switch -c new") == {"code/app"}
  assert named("cat code/app/b.txt && git -C code/app add b.txt") == {
      "code/app", "code/app/b.txt",
  }  # fmt: skip
  skills = (exec_call("head -n 4 skills/*/SKILL.md"), read_call("skills/mail/SKILL.md"))
  assert used_inputs(files, skills) == set()


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
def test_the_inputs_of_composed_tasks_are_those_of_the_work(number, monkeypatch):
  """Whatever lies beside the work is not counted."""
  beside: list[Part] = []

  def laid(*given) -> Part:
    beside.append(surroundings(*given))
    return beside[-1]

  monkeypatch.setattr(compose, "surroundings", laid)
  graph = families("train")[number % len(families("train"))].graph
  parts = (compose.build(graph, Setting(f"s {n}", "train")) for n in range(60))
  part = next(p for p in parts if p)
  found = used_inputs(part.workspace, part.calls)
  assert found and found.isdisjoint(beside[-1].workspace)
  folders = {str(p) for path in part.workspace for p in PurePosixPath(path).parents}
  assert found <= {*part.workspace, *folders}


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
