"""Makes tasks from a seed, bit for bit the same on every run.

Task i of (seed, split) depends on nothing else, so a longer run begins with
the tasks of a shorter one. In every ten tasks six take one call, three take
two and one takes three; within each the families take turns. A task appears
under its name only when it is whole; whole ones are skipped, so the same
command continues after a stop.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.runs import only_writer, same_run
from clawgym_jax.contracts.task import SPLITS, Limits, Task, load_task, save_task
from data_gen import families as families  # registers the families
from data_gen import grader, voice
from data_gen.draft import REGISTRY, Family
from data_gen.world import World

GENERATOR = "procedural-2"
_MIX = (1, 1, 1, 1, 1, 1, 2, 2, 2, 3)  # tool calls of ten tasks in a row

_OUT = flags.DEFINE_string("out", None, "Folder for the task directories.")
_NUM = flags.DEFINE_integer("num_tasks", 100, "How many tasks.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "Seed; the same one gives the same tasks.")
_SPLIT = flags.DEFINE_enum("split", "train", SPLITS, "Which side of the pools.")


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
      calls=draft.calls,
      final_message=draft.final_message,
  )


def task_id(family: Family, seed: int, split: str, index: int) -> str:
  return f"{split}-{seed}-{index:05d}-{family.name}"


def synthesize(out: Path, num_tasks: int, seed: int, split: str) -> dict[str, Any]:
  """Makes what is missing of tasks 0 … num_tasks - 1; counts per family.

  `UserError` if `out` holds tasks of another seed or split.
  """
  with only_writer(out, "synthesis"):
    same_run(out / "synthesis.json", {"seed": seed, "split": split})
    counts, made = _make_missing(out, num_tasks, seed, split)
  return {
      "tasks": num_tasks,
      "made": made,
      "already_there": num_tasks - made,
      "families": dict(sorted(counts.items())),
      "out": str(out),
  }


def _make_missing(
    out: Path, num_tasks: int, seed: int, split: str
) -> tuple[Counter[str], int]:
  """Tasks per family, and how many were not there."""
  counts: Counter[str] = Counter()
  made = 0
  bar = cli.progress(num_tasks, "tasks", unit="task")
  for index in range(num_tasks):
    family = choose_family(seed, split, index)
    final = out / task_id(family, seed, split, index)
    if not _whole(final):
      make_task(final, family, seed, split, index)
      made += 1
    counts[family.name] += 1
    bar.update()
  bar.close()
  return counts, made


def _whole(directory: Path) -> bool:
  """True for a task of this generator; another's under this name is replaced."""
  try:
    task = load_task(directory)
  except RecordError:
    return False
  return task.provenance.get("generator") == GENERATOR


def main() -> dict[str, Any]:
  if not _OUT.value:
    raise UserError("--out is missing: give the folder for the tasks")
  out = Path(_OUT.value)
  if out.exists() and not out.is_dir():
    raise UserError(f"--out={out} is a file: give a folder")
  summary = synthesize(out, _NUM.value, _SEED.value, _SPLIT.value)
  print(f"{summary['tasks']} tasks in {out} ({summary['made']} new)")
  return summary


if __name__ == "__main__":
  cli.run(main)
