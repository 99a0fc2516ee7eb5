"""Makes tasks from a seed, bit for bit the same on every run and machine.

Task i of (generator, seed, split) depends on nothing else, so a longer run
begins with the tasks of a shorter one, and several processes make what one
would. A task appears under its name only when it is whole; whole ones are
skipped, so the same command continues after a stop, and those that an audit
rejected are not made again. With --audit the tasks are judged, too (see `admitted`).
Tasks that a model writes (`data_gen.llm`) are the same again as long as its replies
are kept.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli, tethered
from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.runs import only_writer, same_run
from clawgym_jax.contracts.task import SPLITS, intact, load_task
from data_gen import compact, skills
from data_gen.admitted import fill
from data_gen.audit.folder import rejected
from data_gen.audit.run import audited
from data_gen.compose import make as composed
from data_gen.llm import flags as llm_flags
from sandbox.backends.flags import backend

# name -> the module that makes its tasks: GENERATOR, `planned` and `make`
GENERATORS = {"procedural": composed, "compact": compact}
_BY_MODEL = "llm"  # `data_gen.llm`, which has flags and a run of its own

_OUT = flags.DEFINE_string("out", None, "Folder for the task directories.")
_NUM = flags.DEFINE_integer("num_tasks", 100, "How many tasks.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "Seed; the same one gives the same tasks.")
_SPLIT = flags.DEFINE_enum(
    "split", "train", SPLITS, "heldout has people, words and families of its own."
)
_GENERATOR = flags.DEFINE_enum(
    "generator", "procedural", [*GENERATORS, _BY_MODEL],
    "procedural: composed of typed operations, eight calls and more; compact: one to"
    " three calls, for small models; llm: written by the model at --endpoint.",
)  # fmt: skip
_WORKERS = flags.DEFINE_integer(
    "workers", 0, "Processes; 0 is one a core, and one where there is little to make.", 0
)
_SKILLS = flags.DEFINE_string(
    "skills", None, "Folder of SKILL.md files for the tasks that skills ground; where"
    " none of it is about a task's work, ours are used.",
)  # fmt: skip
_AUDIT = flags.DEFINE_bool(
    "audit", False, "Judge the tasks, too, and make others in place of those that are"
    " rejected until --num_tasks are admitted. A model's are always judged.",
)  # fmt: skip
_AGAINST = flags.DEFINE_string(
    "against", None, "With --audit: folder of tasks whose requests must not come"
    " again, as a bench.",
)  # fmt: skip
_FEW = 64  # tasks for which no process is started


def synthesize(
    out: Path,
    num_tasks: int,
    seed: int,
    split: str,
    generator: str = "procedural",
    workers: int = 0,
    skills_of: Path | None = None,
) -> dict[str, Any]:
  """Makes what is missing of tasks 0 … num_tasks - 1; counts per family.

  A task that an audit of `out` rejected is not missing.

  `skills_of` is a folder of skills for the procedural generator. `UserError` if
  `out` holds tasks of another generator, seed, split or other skills.
  """
  source = GENERATORS[generator]
  identity = {"seed": seed, "split": split, "generator": generator}
  library = skills.library(skills_of) if skills_of else None
  if library:
    identity["skills"] = library.digest
  with only_writer(out, "synthesis"):
    same_run(out / "synthesis.json", identity)
    plan = [source.planned(seed, split, index) for index in range(num_tasks)]
    gone = rejected(out)
    missing = [
        index
        for index, (name, _) in enumerate(plan)
        if name not in gone and not _whole(out / name, source)
    ]
    folder = (skills_of, library.digest) if library else None
    _make(out, missing, num_tasks, seed, split, generator, workers, folder)
  with_skills = {}
  if library:
    told = [source.grounded(seed, split, i, library) for i in range(num_tasks)]
    with_skills = {"skills": {**skills.counts(library), "tasks": sum(told)}}
  return {
      "tasks": num_tasks,
      "made": len(missing),
      "already_there": num_tasks - len(missing),
      "families": dict(sorted(Counter(family for _, family in plan).items())),
      **with_skills,
      "out": str(out),
  }


def _make(
    out: Path,
    missing: list[int],
    num_tasks: int,
    seed: int,
    split: str,
    generator: str,
    workers: int,
    folder: tuple[Path, str] | None,
) -> None:
  bar = cli.progress(
      num_tasks, "tasks", done=num_tasks - len(missing), unit="task"
  )
  one = functools.partial(make_one, out, seed, split, generator, folder)
  workers = workers or (len(os.sched_getaffinity(0)) if len(missing) > _FEW else 1)
  try:
    if workers == 1:
      for index in missing:
        one(index)
        bar.update()
      return
    with ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), _begin, (os.getpid(),)
    ) as pool:
      for _ in pool.map(one, missing, chunksize=8):
        bar.update()
  except BrokenProcessPool:
    raise UserError(
        "a worker was ended from outside, as the system does where memory runs out:"
        " give fewer --workers, and run the same command again"
    ) from None
  finally:
    bar.close()


def _begin(parent: int) -> None:
  """In a worker: Ctrl-C is the parent's to handle, and its end is ours."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  tethered.tie(parent, signal.SIGKILL)


def make_one(
    out: Path,
    seed: int,
    split: str,
    generator: str,
    folder: tuple[Path, str] | None,
    index: int,
) -> None:
  """Writes task `index` below `out`; `folder` is one of skills, and their digest."""
  source = GENERATORS[generator]
  name, _ = source.planned(seed, split, index)
  given = {"library": skills.library(*folder)} if folder else {}
  source.make(out / name, seed, split, index, **given)


def _whole(directory: Path, source: Any) -> bool:
  """True for an intact task of this generator; anything else under this name is
  replaced."""
  try:
    task = load_task(directory)
  except RecordError:
    return False
  return task.provenance.get("generator") == source.GENERATOR and intact(task)


def main() -> dict[str, Any]:
  if not _OUT.value:
    raise UserError("--out is missing: give the folder for the tasks")
  out = Path(_OUT.value)
  if out.exists() and not out.is_dir():
    raise UserError(f"--out={out} is a file: give a folder")
  folder = Path(_SKILLS.value) if _SKILLS.value else None
  if folder and _GENERATOR.value != "procedural":
    raise UserError(f"--skills is for --generator=procedural, not {_GENERATOR.value}")
  if _GENERATOR.value == _BY_MODEL:
    return _by_model(out)
  if _AGAINST.value and not _AUDIT.value:
    raise UserError("--against is for --audit: give both, or neither")
  llm_flags.refuse(_GENERATOR.value, audits=_AUDIT.value)
  library = skills.library(folder) if folder else None
  if library:
    for line in skills.lines(library):
      print(f"not used: {line}")

  def make(num_tasks: int) -> dict[str, Any]:
    summary = synthesize(
        out, num_tasks, _SEED.value, _SPLIT.value, _GENERATOR.value, _WORKERS.value,
        folder,
    )  # fmt: skip
    print(f"{num_tasks} tasks in {out} ({summary['made']} new)")
    if folder:
      print(f"skills of {folder} ground {summary['skills']['tasks']} of them")
    return summary

  if not _AUDIT.value:
    return make(_NUM.value)
  judge = functools.partial(
      audited, out, concurrency=llm_flags.concurrency(), backend=backend(),
      library=library, against=Path(_AGAINST.value) if _AGAINST.value else None,
  )  # fmt: skip
  return fill(_NUM.value, make, judge)


def _by_model(out: Path) -> dict[str, Any]:
  if flags.FLAGS["workers"].present:
    raise UserError("--workers is not for --generator=llm: give --concurrency")
  settings = llm_flags.settings()
  from data_gen.llm import run  # servers and clients, which no worker should load

  summary = run.synthesize(out, _NUM.value, _SEED.value, _SPLIT.value, settings)
  print(run.printed(summary))
  if summary["lost"]:
    raise UserError(
        f"{summary['lost']} ideas are undecided, as the endpoint or a sandbox failed:"
        " run the same command again"
    )
  return summary


if __name__ == "__main__":
  cli.run(main)
