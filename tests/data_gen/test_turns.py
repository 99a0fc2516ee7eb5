"""Tasks of several user turns: a later one needs what an earlier one left."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter

import pytest

from clawgym_jax.contracts.task import Task
from data_gen.audit import trial
from data_gen.compose import make
from data_gen.compose.compose import build
from data_gen.compose.extras import BLOCK, hazard_of, pattern_of
from data_gen.compose.families import families
from data_gen.compose.graph import Graph
from data_gen.compose.part import Part
from data_gen.compose.personas import STYLES, Persona, persona
from data_gen.compose.setting import Setting
from data_gen.compose.turns import PATTERNS
from data_gen.compose.voices import speak
from tests.data_gen.local_agent import graded

GRAPH = Graph("csv", ("above", "sort_by"), "csv", ("unpack",))
ALONE = dataclasses.replace(GRAPH, chores=())
SPLITS = ("train", "heldout")


def with_turns(split: str, seed: int, count: int) -> list[int]:
  """The numbers of the first tasks with several turns."""
  numbers = (n for n in range(BLOCK * count) if pattern_of(seed, split, n, GRAPH))
  return [number for number, _ in zip(numbers, range(count))]


def audited(task: Task) -> trial.Findings:
  return asyncio.run(trial.judge(task, rebuild=make.rebuild))


def made(
    name: str, split: str = "train", start: int = 0, graph: Graph = GRAPH
) -> tuple[Setting, Part]:
  for attempt in range(start, start + 80):
    setting = Setting(f"{name} {attempt}", split)
    part = build(graph, setting, pattern=PATTERNS[name])
    if part:
      return setting, part
  raise AssertionError(f"{name} is never made")


def test_any_200_tasks_have_their_share_of_turns_and_hazards():
  for seed in (0, 7):
    turns = [pattern_of(seed, "train", n, GRAPH) is not None for n in range(1800)]
    hazards = [hazard_of(seed, "train", n, GRAPH) is not None for n in range(1800)]
    assert not any(a and b for a, b in zip(turns, hazards))
    for start in range(1600):
      assert sum(turns[start : start + 200]) >= 16
      assert sum(hazards[start : start + 200]) >= 12
    for period in (4, 9):  # skills, and scenarios
      for found in (turns, hazards):
        assert {n % period for n in range(1800) if found[n]} == set(range(period))


def test_patterns_take_turns_and_half_of_them_open_a_conversation():
  chosen = Counter(
      pattern_of(0, "train", n, GRAPH).name for n in with_turns("train", 0, 63)
  )
  assert chosen == dict.fromkeys(PATTERNS, 9)
  fresh = [any(t.fresh for t in made(name)[1].later) for name in PATTERNS]
  assert sum(fresh) >= len(PATTERNS) / 2
  assert {len(made(name)[1].later) for name in PATTERNS} == {1, 2}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", PATTERNS)
def test_the_same_is_asked_over_other_records(name, split):
  setting, part = made(name, split)
  others = (
      build(GRAPH, setting.reseeded(n), pattern=PATTERNS[name])
      for n in range(1, 9)
  )
  again = next(filter(None, others))
  assert again.asked == part.asked
  assert [t.calls for t in again.later] == [t.calls for t in part.later]
  assert again.calls == part.calls and again.workspace != part.workspace


@pytest.mark.parametrize("name", PATTERNS)
def test_it_is_said_in_three_ways_and_in_every_voice(name):
  parts = [made(name, "train", 100 * n, ALONE)[1] for n in range(24)]
  turns = [text for part in parts for text in part.asked]
  lines = [line for text in turns for line in text.split("\n")]
  asked = [line for line in lines if not line.startswith(("From the", "- "))]
  assert len({" ".join(line.split()[:3]) for line in asked}) >= 3
  setting, part = made(name)
  for style in STYLES:
    asker = Persona(**{**vars(persona(setting)), "style": style})
    for number, turn in enumerate(part.later, 1):
      spoken = speak(setting, asker, turn.said, number)
      for line in turn.said.split("\n"):
        assert line in spoken


@pytest.mark.parametrize("number", range(6))
def test_some_are_made_and_sound(tmp_path, number):
  split = SPLITS[number % 2]
  index = with_turns(split, 3, 6)[number]
  task = make.make(tmp_path / "t", 3, split, index)
  assert task.followups and len(task.reference()) == 1 + len(task.followups)
  found = audited(task)
  assert found.causes == [] and found.reseeded
  assert not any(found.attacks.values())


def test_a_turn_that_is_left_out_costs_the_score(tmp_path, monkeypatch):
  """Its calls alone are not made; all else is, as if nothing were amiss."""
  for name in ("rule_has_changed", "left_open", "meant_otherwise"):
    _, part = made(name, graph=ALONE)
    turns = [part.calls, *(turn.calls for turn in part.later)]
    for left_out in (None, *range(len(turns))):
      calls = [c for n, turn in enumerate(turns) if n != left_out for c in turn]
      values = graded(tmp_path / f"{name} {left_out}", part, calls, monkeypatch)
      assert all(values.values()) == (left_out is None), (name, left_out, values)


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_forty_are_made_and_sound(tmp_path, split):
  for index in with_turns(split, 11, 20):
    found = audited(make.make(tmp_path / f"{index}", 11, split, index))
    assert found.causes == [] and found.reseeded, index
    assert len(found.survivors) <= 1, (index, found.survivors)


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_every_family_can_have_turns_and_a_hazard(split):
  for family in families(split):
    fitting = [one for one in PATTERNS.values() if one.fits(family.graph)]
    hazards = (hazard_of(0, split, n, family.graph) for n in range(BLOCK))
    ways = [
        *({"pattern": one} for one in fitting), {"hazard": next(filter(None, hazards))}
    ]  # fmt: skip
    found = [
        any(
            build(family.graph, Setting(f"any {family.name} {n}", split), **way)
            for n in range(40)
        )
        for way in ways
    ]
    assert any(found[:-1]) and found[-1], (family.name, found)
