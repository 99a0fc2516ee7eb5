"""Attempts judged as they come: the outcomes of fresh sandboxes, from fewer of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clawgym_jax.contracts.task import Task
from data_gen.compact import make_task as make_procedural
from data_gen.draft import REGISTRY
from sandbox.backends.base import pack
from sandbox.backends.labels import labelled
from sandbox.fleet import RunSettings, roll_out
from sandbox.verify import State, Verifiers, many, verifiers
from tests.sandbox.small_task import make_task as make_foreign
from tests.sandbox.test_rollout import trajectories

SETTINGS = dict(backend="bubblewrap", run_id="verifiers-test", seconds=20.0)
SUM = "def grade(*a): return {'right': 0.5}"


def make_ours(directory: Path, check: str = SUM) -> Task:
  """A small task that counts as made by our own generator."""
  return make_foreign(directory, check, provenance={"generator": "procedural-0"})


def alive() -> set[int]:
  """Process ids of what these tests' verifiers have running."""
  return {pid for pid, mark in labelled().items() if mark.run_id == "verifiers-test"}


@pytest.mark.parametrize("harness", ["oracle", "null"])
def test_a_run_has_the_outcomes_of_fresh_sandboxes(
    tmp_path, harness, opened, monkeypatch
):
  for number, family in enumerate(("csv_total", "pack_folder")):
    place = tmp_path / "tasks" / family
    make_procedural(place, REGISTRY[family], 5, "train", number)

  def outcomes(out, **fields):
    settings = RunSettings(
        out=tmp_path / out, harness=harness, tasks=tmp_path / "tasks", samples=4,
        **fields,
    )  # fmt: skip
    assert roll_out(settings)["scored"] == 8
    return [(t.id, t.outcome) for t in trajectories(tmp_path / out)]

  warm = outcomes("warm", concurrency=1)
  assert len(opened) == 2  # of eight; the first of each task had its own
  in_workers = outcomes("workers", workers=2, concurrency=4)
  monkeypatch.setattr(many, "trusted", lambda task: False)
  fresh = outcomes("fresh", concurrency=2)
  assert warm == in_workers == fresh and len(opened) == 2
  assert {outcome.score for _, outcome in fresh} == {float(harness == "oracle")}
  assert not [m for m in labelled().values() if m.run_id in ("warm", "workers")]


def test_checks_of_others_and_changed_ones_share_nothing(tmp_path, opened):
  changed = make_ours(tmp_path / "tasks" / "changed")
  (changed.checks / "check.py").write_text(SUM + "\n")
  make_foreign(tmp_path / "tasks" / "foreign", SUM)
  settings = RunSettings(
      out=tmp_path / "out", harness="null", tasks=tmp_path / "tasks", samples=3
  )
  assert roll_out(settings)["mean_reward"] == 0.5
  assert not opened


def test_none_waits_for_another_and_few_are_kept(tmp_path, opened, monkeypatch):
  monkeypatch.setattr(verifiers, "_MOST_IDLE", 2)
  check = """
import os, time
def grade(workspace, final_message, transcript):
  time.sleep(float(final_message)); return {"right": 1.0}
"""
  task = make_ours(tmp_path / "t", check)
  state = State(pack({}), "0.3")

  async def whole():
    async with Verifiers() as judges:
      await judges.judge(task, state, **SETTINGS)
      assert not opened  # a task that comes once has a fresh one
      three = [judges.judge(task, state, **SETTINGS) for _ in range(3)]
      outcomes = await asyncio.gather(*three)
      assert len(opened) == 3
      assert len({box.pid for box in opened} & alive()) == 2
      outcomes.append(await judges.judge(task, State(pack({}), "0"), **SETTINGS))
      assert len(opened) == 3
      given_up = asyncio.create_task(judges.judge(task, State(pack({}), "9"), **SETTINGS))
      await asyncio.sleep(0.2)
      given_up.cancel()
      await asyncio.gather(given_up, return_exceptions=True)
      outcomes.append(await judges.judge(task, State(pack({}), "0"), **SETTINGS))
      assert [outcome.score for outcome in outcomes] == [1.0] * 5
    assert not alive()

  asyncio.run(whole())


def test_the_oldest_are_forgotten(tmp_path, opened, monkeypatch):
  monkeypatch.setattr(verifiers, "_MOST_SEEN", 1)
  one, two = make_ours(tmp_path / "one"), make_ours(tmp_path / "two")

  async def whole():
    async with Verifiers() as judges:
      for task in (one, two, one, one):
        outcome = await judges.judge(task, State(pack({})), **SETTINGS)
        assert outcome.score == 0.5

  asyncio.run(whole())
  assert len(opened) == 1  # for the last alone
