"""Composed tasks: many families, none often, each solved by its calls alone."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import json
import lzma
import statistics
import zlib
from collections import Counter, defaultdict
from pathlib import PurePosixPath

from clawgym_jax.contracts.task import SPLITS, Task
from data_gen import compact
from data_gen.audit.shares import used_inputs
from data_gen.compose import make
from data_gen.compose.extras import BLOCK, pattern_of
from data_gen.compose.families import FILE, extended, families
from data_gen.compose.topics import topic_of
from data_gen.draft import REGISTRY
from data_gen.taxonomy import CATEGORY_OF, SCENARIO_OF, SCENARIOS
from sandbox.backends import open_sandbox
from sandbox.backends.base import gather
from sandbox.harnesses import HarnessContext, load
from sandbox.verify import Verifier
from sandbox.verify.checks import State

_EVERY = 61  # of the training families, one is tried


def test_the_families_are_many_and_a_part_is_reserved():
  train, heldout = families("train"), families("heldout")
  names = [family.graph.name for family in (*train, *heldout)]
  assert len(set(names)) == len(names)
  assert {op for f in (*train, *heldout) for op in f.operations} <= CATEGORY_OF.keys()
  sources = Counter(f.graph.source for f in train)
  assert max(sources.values()) < 0.08 * len(train)


def test_no_family_is_more_than_a_hundredth_of_200_tasks_or_more():
  """However many tasks there are, up to the 13,500 of the released set."""
  for split, least in (("train", 400), ("heldout", 150)):
    assert len(families(split)) >= least
    counts: Counter[int] = Counter()
    for index in range(13_500):
      counts[make.choose_family(1, split, index).number] += 1
      if 200 <= index + 1 <= 2_000 or index == 13_499:
        assert max(counts.values()) <= 0.01 * (index + 1), (split, index + 1)


def test_every_operation_and_every_subcategory_is_of_three_families():
  """Of 2,000 training tasks, as far as they are planned: each is of the first of its
  settings that gives sound work, most often the first."""
  reached = defaultdict(set)
  for index in range(2_000):
    family = make.choose_family(1, "train", index)
    _, setting = next(make.tried(family, 1, "train", index))
    for name in (*family.operations, topic_of(setting).subcategory):
      reached[name].add(family.number)
  few = {name for name in (*CATEGORY_OF, *SCENARIO_OF) if len(reached[name]) < 3}
  assert not few


def test_operations_are_what_a_task_needs():
  wanted = {
      "eml": "mail reading", "mbox": "mail reading", "log": "log reading",
      "zip": "archive reading", "tar": "archive reading", "sqlite": "database query",
      "xlsx": "document reading", "docx": "document reading", "pdf": "document reading",
      "git": "version control", "notes": "memory recall",
  }  # fmt: skip
  for split in SPLITS:
    for family in families(split):
      graph = family.graph
      for kind, _, mess in (k.partition("_") for k in (graph.source, graph.second) if k):
        assert wanted.get(kind, "file reading") in family.operations
        if mess in ("thousands", "day_first", "padded", "latin1"):
          assert "normalisation" in family.operations


def test_turns_need_what_they_bring(tmp_path):
  """What is told in one conversation and gone by in another is noted and recalled."""
  needs = {}
  for index in range(3 * BLOCK):
    family = make.choose_family(4, "train", index)
    if pattern := pattern_of(4, "train", index, family.graph):
      task = make.make(tmp_path / f"{index}", 4, "train", index)
      needs[pattern.name] = set(task.operations) - set(family.operations)
  assert needs["by_the_rule"] <= {"memory keeping", "memory recall"}
  assert needs["by_the_rule"] and needs["list_you_made"] == set()


def test_the_list_of_families_only_grows():
  known = json.loads(FILE.read_text())
  assert extended(known) == known
  held = sum(record["split"] == "heldout" for record in known)
  longer = extended(known, len(known) + 2, held + 1)
  assert longer[:-2] == known
  assert sorted(record["split"] for record in longer[-2:]) == ["heldout", "train"]


def test_sixty_tasks_are_work_over_files_of_many_kinds(tmp_path):
  tasks = [make.make(tmp_path / f"{i}", 2, "train", i) for i in range(60)]
  files = [gather(task.workspace) for task in tasks]
  calls = [[c for turn in t.reference() for c in turn.calls] for t in tasks]
  assert statistics.median(map(len, calls)) >= 8
  assert statistics.median(len({c.name for c in made}) for made in calls) >= 3
  assert statistics.median(map(len, files)) >= 8
  inputs = [len(used_inputs(f, c)) for f, c in zip(files, calls, strict=True)]
  assert sum(count >= 3 for count in inputs) >= 0.3 * len(tasks)
  found = {PurePosixPath(path).suffix for each in files for path in each}
  found |= {".git" for each in files for path in each if ".git/" in path}
  kinds = (
      ".csv .tsv .json .jsonl .yaml .toml .ini .md .html .xml .log .ics .vcf .eml .mbox"
      " .db .xlsx .docx .pdf .zip .gz .png .py .sh .git"
  )
  assert len(found & set(kinds.split())) >= 20


def test_nothing_in_a_workspace_is_compressed(tmp_path, monkeypatch):
  """Compressors give other bytes from one version to the next."""

  def compress(*_, **__):
    raise AssertionError("a compressor ran")

  for module in (zlib, gzip, bz2, lzma):
    monkeypatch.setattr(module, "compress", compress)
  monkeypatch.setattr(zlib, "compressobj", compress)
  packed = {"zip", "tar", "png", "xlsx", "docx", "pdf", "git"}
  for index in range(len(families("heldout"))):
    graph = make.choose_family(0, "heldout", index).graph
    kind = graph.source.split("_")[0]
    if kind in packed or "unpack" in graph.chores:
      packed.discard(kind)
      make.make(tmp_path / f"{index}", 0, "heldout", index)
    if not packed:
      break
  assert not packed
  for name in REGISTRY:
    compact.make_task(tmp_path / name, REGISTRY[name], 7, "train", 0)


def test_families_and_scenarios_take_turns(tmp_path):
  count = len(families("train"))
  chosen = Counter(make.choose_family(0, "train", i).number for i in range(3 * count))
  assert len(chosen) == count and set(chosen.values()) == {3}
  made = [make.make(tmp_path / f"{i}", 0, "train", i) for i in range(len(SCENARIOS))]
  assert {task.category for task in made} == set(SCENARIOS)


async def judged(task: Task, files: dict[str, bytes]) -> list[float]:
  """The scores of doing nothing and of the solution."""
  async with open_sandbox(run_id="test", now=task.now) as sandbox:
    await sandbox.start(files)
    states = []
    for name in ("null", "oracle"):
      result = await load(name).run(HarnessContext(task, sandbox))
      states.append(
          State(await sandbox.snapshot(), result.final_message, result.transcript)
      )
  async with Verifier(task) as verifier:
    return [(await verifier.judge(state)).score for state in states]


def test_the_calls_solve_a_task_and_the_same_request_over_other_records(tmp_path):
  tried = 0
  for index in range(0, len(families("train")), _EVERY):
    task = make.make(tmp_path / f"{index}", 5, "train", index)
    if task.requires:
      continue
    files = gather(task.workspace)
    scores = asyncio.run(judged(task, files))
    assert scores == [0.0, 1.0], task.family
    again = make.rebuild(task, 1)
    assert again is not None, task.family
    other, checks, _ = again
    assert other != files, task.family
    for name, data in checks.items():
      (task.checks / name).write_bytes(data)
    assert asyncio.run(judged(task, other)) == [0.0, 1.0], task.family
    tried += 1
  assert tried >= 5


def test_expected_json_names_what_may_change(tmp_path):
  task = make.make(tmp_path / "t", 0, "heldout", 0)
  expected = json.loads((task.checks / "expected.json").read_text())
  assert expected["unchanged"] and expected["deliverables"]
