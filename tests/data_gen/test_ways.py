"""The ways to the same result: a program a step, or a script that grows."""

from __future__ import annotations

from collections import Counter

import pytest

from data_gen.compose import records
from data_gen.compose.compose import build
from data_gen.compose.graph import Graph
from data_gen.compose.setting import Setting
from tests.data_gen.test_skills import _run

GRAPHS = (
    Graph("csv", ("above", "cost"), "json", (), "tsv"),
    Graph("eml", ("since", "total_by"), "markdown"),
    Graph("sqlite", ("keep_value", "share"), "csv"),
)
TOOLS = {
    0: {"exec", "read"},  # how often a script is run -> the tools
    1: {"exec", "read", "write"},
    2: {"exec", "read", "write", "edit"},
    3: {"exec", "read", "write", "edit"},
}


def _drawn(graph: Graph):
  found = (build(graph, Setting(f"way {number}", "train")) for number in range(60))
  return next(part for part in found if part)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_every_way_leads_to_the_result(tmp_path, monkeypatch, graph):
  requests = set()
  for runs in TOOLS:
    monkeypatch.setattr(records, "_RUNS", (runs,))
    part = _drawn(graph)
    assert {call.name for call in part.calls} <= TOOLS[runs]
    place = tmp_path / str(runs)
    place.mkdir()
    before, after = _run(part, place)
    assert not any(before.values()) and all(after.values()), (runs, after)
    requests.add(part.said)
  assert len(requests) == 1  # the way is no part of what is asked


def test_most_work_with_three_tools_or_more():
  ways = Counter()
  for number in range(60):
    part = build(GRAPHS[2], Setting(f"way {number}", "train"))
    ways.update([len({call.name for call in part.calls}) > 2] if part else [])
  assert ways[True] > ways[False] > 0
