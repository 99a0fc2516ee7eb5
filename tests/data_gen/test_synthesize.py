"""Reproducible, resumable, and two splits that share nothing."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import list_tasks, load_task
from data_gen.compact import choose_family
from data_gen.draft import REGISTRY
from data_gen.pools import POOLS
from data_gen.synthesize import GENERATORS, synthesize
from data_gen.world import World


def _contents(folder: Path) -> dict[str, bytes]:
  return {
      str(p.relative_to(folder)): p.read_bytes()
      for p in sorted(folder.rglob("*"))
      if p.is_file()
  }


@pytest.mark.parametrize("generator", GENERATORS)
def test_the_same_seed_gives_the_same_bytes_in_other_processes(tmp_path, generator):
  synthesize(tmp_path / "a", 12, 3, "train", generator)
  command = [sys.executable, "-m", "data_gen.synthesize", "--json", "--seed=3"]
  command += [f"--generator={generator}", "--workers=2"]
  run = subprocess.run(
      [*command, f"--out={tmp_path / 'b'}", "--num_tasks=12"],
      capture_output=True,
      text=True,
      timeout=60,
      check=True,
      env={**os.environ, "PYTHONHASHSEED": "1"},
  )
  assert json.loads(run.stdout.splitlines()[-1])["made"] == 12
  assert _contents(tmp_path / "a") == _contents(tmp_path / "b")


@pytest.mark.parametrize("generator", GENERATORS)
def test_it_resumes_extends_and_mends(tmp_path, generator):
  synthesize(tmp_path / "whole", 12, 3, "heldout", generator)
  assert synthesize(tmp_path / "out", 6, 3, "heldout", generator)["made"] == 6
  torn, changed, lacking = list_tasks(tmp_path / "out")[:3]
  (torn / "task.json").unlink()
  first, *_ = (path for path in changed.rglob("workspace/**/*") if path.is_file())
  first.write_bytes(first.read_bytes() + b"x")
  (lacking / "solution" / "calls.json").unlink()
  summary = synthesize(tmp_path / "out", 12, 3, "heldout", generator)
  assert (summary["made"], summary["already_there"]) == (9, 3)
  assert _contents(tmp_path / "out") == _contents(tmp_path / "whole")


def test_seed_and_split_give_other_tasks(tmp_path):
  for seed, split in ((1, "train"), (2, "train"), (1, "heldout")):
    synthesize(tmp_path / f"{split}{seed}", 8, seed, split, "compact")
  tasks = [load_task(path) for path in tmp_path.glob("*/*/") if path.is_dir()]
  assert len({task.instruction for task in tasks}) == len(tasks) == 24
  with pytest.raises(UserError, match=r"seed \(was 1, is 2\)"):
    synthesize(tmp_path / "train1", 8, 2, "train", "compact")
  with pytest.raises(UserError, match="generator"):
    synthesize(tmp_path / "train1", 8, 1, "train", "procedural")


def test_the_mix_is_60_30_10_and_families_take_turns():
  chosen = [choose_family(5, "train", i) for i in range(420)]
  assert Counter(f.calls for f in chosen) == {1: 252, 2: 126, 3: 42}
  for calls in (1, 2, 3):
    counts = Counter(f.name for f in chosen if f.calls == calls)
    assert set(counts) == {f.name for f in REGISTRY.values() if f.calls == calls}
    assert max(counts.values()) - min(counts.values()) <= 1


def test_the_pools_of_the_splits_are_disjoint():
  train = {word.lower() for sides in POOLS.values() for word in sides[0]}
  heldout = {word.lower() for sides in POOLS.values() for word in sides[1]}
  assert not train & heldout


def test_worlds_of_the_splits_share_no_number_date_or_person():
  def draws(split: str) -> set[str]:
    found = set()
    for seed in range(40):
      world = World(random.Random(seed), split)
      found |= {world.name, world.company, str(world.date()), *world.colleagues}
      found |= {str(world.number(1, 900)) for _ in range(30)}
      found |= {world.amount(10, 90) for _ in range(30)}
    return found

  assert not draws("train") & draws("heldout")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "--out is missing"),
        (["--out=pyproject.toml"], "is a file"),
        (["--out=x", "--num_tasks=0"], "num_tasks"),
        (["--out=x", "--split=test"], "split"),
    ],
)
def test_bad_flags_are_refused_before_work(flags, says):
  run = subprocess.run(
      [sys.executable, "-m", "data_gen.synthesize", *flags],
      capture_output=True,
      text=True,
      timeout=60,
      check=False,
  )
  assert run.returncode != 0 and says in run.stderr and "Traceback" not in run.stderr
