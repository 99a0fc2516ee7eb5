"""Compact tasks: short requests of one to three calls, for small models.

Task i of (seed, split) depends on nothing else. In every ten tasks six take one
call, three take two and one takes three; within each the families take turns.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from clawgym_jax.contracts.task import Limits, Reference, Task, save_task
from data_gen import families as families  # registers the families
from data_gen import grader, voice
from data_gen.draft import REGISTRY, Family
from data_gen.world import World

GENERATOR = "procedural-compact-2"
_MIX = (1, 1, 1, 1, 1, 1, 2, 2, 2, 3)  # tool calls of ten tasks in a row


def choose_family(seed: int, split: str, index: int) -> Family:
  """The family of task `index`: by the mix of calls, then by turns."""
  block, place = divmod(index, len(_MIX))
  order = list(_MIX)
  random.Random(f"mix {seed} {split} {block}").shuffle(order)
  calls = order[place]
  turn = block * _MIX.count(calls) + order[:place].count(calls)
  names = sorted(name for name, f in REGISTRY.items() if f.calls == calls)
  cycle, position = divmod(turn, len(names))
  random.Random(f"turn {seed} {split} {calls} {cycle}").shuffle(names)
  return REGISTRY[names[position]]


def make_task(directory: Path, family: Family, seed: int, split: str, index: int) -> Task:
  """Writes one task to `directory`, whole or not at all."""
  world = World(random.Random(f"task {seed} {split} {index} {family.name}"), split)
  draft = family.build(world)
  draft.workspace.setdefault("notes/team.txt", world.team_note())
  if len(draft.workspace) < 7:
    draft.workspace.setdefault("notes/week.txt", world.week_note())
  style = world.rng.choice(voice.STYLES)
  instruction = voice.speak(world, style, family.request(world, draft, style))
  return save_task(
      directory,
      Task(
          id=task_id(family, seed, split, index),
          instruction=instruction,
          family=family.name,
          split=split,
          category=family.category,
          macro_category=family.macro_category,
          operations=family.operations,
          difficulty=family.calls,
          persona={
              "name": world.name,
              "role": world.role,
              "company": world.company,
              "city": world.city,
              "style": style,
          },
          now=f"{world.today.isoformat()}T09:00:00Z",
          limits=Limits(turns=family.calls + 3, seconds=120.0),
          provenance={"generator": GENERATOR, "seed": seed, "index": index},
      ),
      workspace=draft.files(),
      checks={
          "check.py": Path(grader.__file__).read_bytes(),
          "expected.json": json.dumps(draft.expected(), indent=1).encode() + b"\n",
      },
      turns=[Reference(draft.calls, draft.final_message)],
  )


def task_id(family: Family, seed: int, split: str, index: int) -> str:
  return f"{split}-{seed}-{index:05d}-{family.name}"


def planned(seed: int, split: str, index: int) -> tuple[str, str]:
  """The id and the family's name of task `index`."""
  family = choose_family(seed, split, index)
  return task_id(family, seed, split, index), family.name


def make(directory: Path, seed: int, split: str, index: int) -> Task:
  """Writes task `index` to `directory`, whole or not at all."""
  return make_task(directory, choose_family(seed, split, index), seed, split, index)
