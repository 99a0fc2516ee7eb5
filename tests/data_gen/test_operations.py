"""The code of each operation gives what was computed from typed values."""

from __future__ import annotations

import ast
import json
import random
import subprocess
from collections import defaultdict

import pytest

from data_gen.compose.operations import OPERATIONS, Chain, chain, may_follow
from data_gen.compose.setting import Setting
from data_gen.compose.topics import TOPICS
from data_gen.taxonomy import CATEGORY_OF

_RUN = """
import json, sys
results = []
for case in json.load(sys.stdin):
  names = {"rows": case["rows"], "other": case["other"], "json": json}
  for code in case["codes"]:
    exec(code, names)
  results.append([list(names["rows"][0]) if names["rows"] else [],
                  [list(r.values()) for r in names["rows"]]])
json.dump(results, sys.stdout)
"""


def _drawn(names: list[str], setting: Setting) -> Chain | None:
  topic = setting.rng.choice(sorted(TOPICS.values(), key=lambda t: t.name))
  return chain(names, setting, topic.draw(setting, setting.rng.randint(24, 60)))


def _first(names: list[str], split: str, number: int) -> tuple[Setting, Chain] | None:
  for attempt in range(40):
    setting = Setting(f"{number} {attempt} {' '.join(names)}", split)
    found = _drawn(names, setting)
    if found:
      return setting, found
  return None


def _records(table) -> list[dict[str, str]]:
  return [dict(zip(table.names, cells)) for cells in table.cells()]


def _run(chains: list[Chain]) -> list:
  cases = [
      {
          "rows": _records(c.source),
          "other": _records(c.second) if c.second else [],
          "codes": [step.code for step in c.steps],
      }
      for c in chains
  ]
  done = subprocess.run(
      ["/usr/bin/python3", "-c", _RUN], input=json.dumps(cases), text=True,
      capture_output=True, timeout=120,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr[-2000:]
  return json.loads(done.stdout)


def _hold(chains: dict[str, Chain]) -> None:
  """Each chain's code gives its table, columns and all."""
  for (name, c), (columns, rows) in zip(chains.items(), _run(list(chains.values()))):
    want = c.result.cells()
    assert columns == c.result.names, name
    assert sorted(rows) == sorted(want), name
    assert not c.ordered or rows == want, name


@pytest.fixture(scope="module")
def drawn() -> dict[str, tuple[Setting, Chain]]:
  """Each operation, alone or before a sum, in both splits and two settings."""
  found = {}
  for name in OPERATIONS:
    names = [name, "total_by"] if name == "sort_by" else [name]
    for split in ("train", "heldout"):
      for number in range(2):
        one = _first(names, split, number)
        assert one, f"{name} is never drawn"
        found[f"{name} {split} {number}"] = one
  return found


def test_code_gives_the_typed_result(drawn):
  _hold({name: c for name, (_, c) in drawn.items()})


def test_the_same_code_is_right_on_other_records(drawn):
  others = {}
  for name, (setting, c) in drawn.items():
    names = name.split()[:1]
    names += ["total_by"] if names == ["sort_by"] else []
    for reseed in range(1, 9):
      again = _drawn(names, setting.reseeded(reseed))
      if again:
        break
    assert again, f"{name} is never drawn again"
    assert [s.code for s in again.steps] == [s.code for s in c.steps]
    assert [s.said for s in again.steps] == [s.said for s in c.steps]
    assert again.source.rows != c.source.rows
    others[name] = again
  _hold(others)


def test_chains_of_two_and_three():
  rng = random.Random(5)
  found = {}
  while len(found) < 60:
    names = rng.sample(sorted(OPERATIONS), rng.choice((2, 3)))
    if may_follow(names):
      one = _first(names, rng.choice(("train", "heldout")), 0)
      if one:
        found[" ".join(names)] = one[1]
  _hold(found)


def test_every_operation_has_three_wordings(drawn):
  said = defaultdict(set)
  for name in OPERATIONS:
    names = [name, "total_by"] if name == "sort_by" else [name]
    for number in range(200):
      one = _drawn(names, Setting(f"said {number} {name}", "train"))
      if one:  # what is chosen differs too, so look at a wording's first words
        said[name].add(" ".join(one.steps[0].said.split()[:2]))
      if len(said[name]) > 2:
        break
  few = {name for name in OPERATIONS if len(said[name]) < 3}
  assert not few


def test_literals_are_said(drawn):
  """Numbers and words in quotes are in the request, in the source, or fixed."""
  fixed = {"0.01", "", ".2f", "-", "[0-9]"}
  for name, (_, c) in drawn.items():
    known = " ".join(s.said for s in c.steps) + " ".join(c.source.names)
    known += " ".join(c.second.names) if c.second else ""
    for step in c.steps:
      for node in ast.walk(ast.parse(step.code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
          said = node.value in fixed or node.value in known
          said = said or "Monday" in node.value or "%" in node.value
        elif isinstance(node, ast.Constant):
          said = node.value in (0, 1, 3, 4, 7, 100) or str(node.value) in known
        else:
          continue
        assert said, (name, node.value, step.said)


def test_atomic_operations_are_the_taxonomys():
  assert {o.atomic for o in OPERATIONS.values()} <= set(CATEGORY_OF)


def test_what_is_no_chain():
  assert not may_follow(["total_by", "top"])
  assert not may_follow(["top", "fill_down"])
  assert not may_follow(["cost", "fee"])
  assert not may_follow(["sort_by"])
  with pytest.raises(ValueError, match="no chain of operations: total_by, top"):
    chain(["total_by", "top"], Setting("k", "train"), None)


def test_an_idle_step_makes_no_chain():
  """Nine rows in ten of the input must not be a result."""
  for number in range(60):
    setting = Setting(f"idle {number}", "train")
    one = _drawn(["drop_value"], setting)
    if one:
      assert len(one.result.rows) <= 0.7 * len(one.source.rows)
