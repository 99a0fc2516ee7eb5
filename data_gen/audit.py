"""Admits a task only if runs in real sandboxes show that it is sound.

The reference solution scores 1; doing nothing and every adversary score 0;
a spoiled result scores less than 1. A task that fails, or can't even be
loaded, moves to DIR/rejected with its causes in DIR/audit.json. A run that
the platform lost, or that the host had no means for, decides nothing: the task
stays, counted as undecided, and the same command tries it again. A fault of
our own ends the audit. Verdicts are kept by content hash; what an earlier run
rejected is reported but is no error of this one.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.files import write_json
from clawgym_jax.contracts.runs import only_writer
from clawgym_jax.contracts.task import Task, content_hash, load_task
from clawgym_jax.contracts.trajectory import Outcome
from data_gen.mutation import spoil_results
from sandbox import services
from sandbox.backends import SandboxError, SandboxLost, check_backend, open_sandbox
from sandbox.backends.base import gather, pack
from sandbox.backends.flags import backend
from sandbox.harnesses import ADVERSARIES, HarnessContext, HarnessResult, load
from sandbox.verify import State, Verifier

VERSION = 1
_SPOILED = "spoiled"
_SAVE_SECONDS = 5.0

_TASKS = flags.DEFINE_string("tasks", None, "Folder of task directories.")
_CONCURRENCY = flags.DEFINE_integer(
    "concurrency", 6, "Sandboxes at once.", lower_bound=1
)
_ALLOW = flags.DEFINE_bool(
    "allow_rejected", False, "Exit with status 0 although this run rejected tasks."
)


_BROKEN_RECORD = (ValueError, KeyError, TypeError, AttributeError)
# What a task's own files can be wrong in; any other OSError is the host's.
_BROKEN_FILES = (
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


class _Broken(Exception):
  """The checks don't judge: the cause is in the list."""


class _Undecided(Exception):
  """A run that was lost for no fault of the task."""


async def judge(task: Task, backend: str = "bubblewrap") -> list[str]:
  """Why `task` is unsound, one cause a failed run; empty if it is sound.

  The runs take turns in one sandbox, the solution last, and their results in
  a second one, or each in a fresh one where the checks aren't our own. A spoiled
  result lacks the last side effect, too.
  """
  causes = []

  async def check(
      name: str, result: HarnessResult, reports: Sequence[dict[str, Any]]
  ) -> None:
    snapshot = await sandbox.snapshot()
    side_effects = services.effects(reports)
    state = State(snapshot, result.final_message, result.transcript, side_effects)
    outcome = await verifier.judge(state)
    cause = _fault(name, outcome)
    if cause:
      causes.append(cause)
    if outcome.score is None:
      raise _Broken  # of every other result it would say the same

  try:
    initial = pack(gather(task.workspace))
    async with (
        open_sandbox(
            backend, run_id="audit", now=task.now, folders=services.folders(task)
        ) as sandbox,
        Verifier(task, backend=backend, run_id="audit") as verifier,
    ):
      await sandbox.start(task.workspace)
      await services.stage(task, sandbox)
      for name in ("null", *ADVERSARIES):
        result = await load(name).run(HarnessContext(task, sandbox))
        await check(name, result, sandbox.reports)
        await sandbox.exec("find . -mindepth 1 -delete")
        await sandbox.restore(initial)
      result = await load("oracle").run(HarnessContext(task, sandbox))
      await check("oracle", result, sandbox.reports)
      await spoil_results(sandbox)
      await check(_SPOILED, result, sandbox.reports[:-1])
  except _Broken:
    pass
  except (SandboxLost, OSError) as error:
    raise _Undecided(f"{type(error).__name__}: {error}") from error
  except SandboxError as error:
    causes.append(f"sandbox: {error}")
  return causes


def _fault(name: str, outcome: Outcome) -> str | None:
  if outcome.score is None:
    cause = outcome.cause or "unscored"
    if cause.startswith("verifier_lost"):
      raise _Undecided(cause)
    return f"{name}: {cause}"
  score = outcome.score
  if name == "oracle":
    wrong = [check for check, value in outcome.checks.items() if value < 1.0]
    return None if score == 1.0 else f"oracle scores {score:g}, fails {wrong}"
  if name == _SPOILED:
    return None if score < 1.0 else "a spoiled result still scores 1"
  return None if score == 0.0 else f"{name} scores {score:g}"


async def audit(
    folder: Path, concurrency: int, backend: str = "bubblewrap"
) -> dict[str, Any]:
  """Judges every task of `folder` that has no verdict yet; the counts."""
  known = _verdicts(folder)
  names = sorted(
      p.name
      for p in folder.iterdir()
      if p.is_dir() and p.name != "rejected" and not p.name.startswith(".")
  )
  if not names and not known:
    raise UserError(f"{folder} holds no tasks: make some with data_gen.synthesize")
  bar = cli.progress(len(names), "audit", unit="task")
  gone = known.keys() - set(names)
  earlier = {n: known[n] for n in gone if known[n]["verdict"] == "rejected"}
  verdicts = dict(earlier)
  undecided: dict[str, str] = {}
  waiting = iter(names)
  saved = time.monotonic()

  async def work() -> None:
    nonlocal saved
    for name in waiting:
      try:
        verdict = await _verdict(folder / name, known.get(name), backend)
      except _Undecided as error:
        undecided[name] = str(error)
      else:
        verdicts[name] = verdict
        if verdict["verdict"] == "rejected":
          _reject(folder, name)
      bar.update()
      if time.monotonic() - saved > _SAVE_SECONDS:
        saved = time.monotonic()
        _save(folder, verdicts)

  try:
    await asyncio.gather(*(work() for _ in range(concurrency)))
  finally:
    bar.close()
    _save(folder, {**known, **verdicts})
  return _summary(verdicts, undecided, len(earlier))


async def _verdict(
    directory: Path, known: dict[str, Any] | None, backend: str
) -> dict[str, Any]:
  try:
    task = load_task(directory)
    task.solution()  # only to see that it can be read
    raw = json_text.parse((directory / "task.json").read_text())
    digest = f"{VERSION}:{content_hash(directory, raw)}"
  except (RecordError, *_BROKEN_FILES, *_BROKEN_RECORD) as error:
    return {
        "verdict": "rejected",
        "hash": "",
        "causes": [f"broken: {type(error).__name__}: {error}"],
    }
  except OSError as error:
    raise _Undecided(f"{type(error).__name__}: {error}") from error
  if known and known["hash"] == digest:
    return known
  causes = await judge(task, backend)
  verdict = "rejected" if causes else "admitted"
  return {
      "verdict": verdict,
      "hash": digest,
      "family": task.family,
      "causes": causes,
  }


def _verdicts(folder: Path) -> dict[str, dict[str, Any]]:
  path = folder / "audit.json"
  if not path.exists():
    return {}
  try:
    return json_text.parse(path.read_text())["tasks"]
  except (ValueError, KeyError, TypeError):
    raise UserError(f"{path} is damaged: remove it to judge all again") from None


def _save(folder: Path, verdicts: dict[str, dict[str, Any]]) -> None:
  counts = Counter(v["verdict"] for v in verdicts.values())
  write_json(
      folder / "audit.json",
      {
          "version": VERSION,
          "counts": dict(sorted(counts.items())),
          "tasks": dict(sorted(verdicts.items())),
      },
  )


def _reject(folder: Path, name: str) -> None:
  place = folder / "rejected" / name
  place.parent.mkdir(exist_ok=True)
  shutil.rmtree(place, ignore_errors=True)
  (folder / name).rename(place)


def _summary(
    verdicts: dict[str, dict[str, Any]], undecided: dict[str, str], earlier: int
) -> dict[str, Any]:
  """The counts; `rejected` by this run, `already_rejected` by `earlier` ones."""
  rejected = {n: v["causes"] for n, v in verdicts.items() if v["verdict"] == "rejected"}
  return {
      "admitted": len(verdicts) - len(rejected),
      "rejected": len(rejected) - earlier,
      "already_rejected": earlier,
      "undecided": len(undecided),
      "causes": {**rejected, **{n: [c] for n, c in undecided.items()}},
  }


def main() -> dict[str, Any]:
  if not _TASKS.value:
    raise UserError("--tasks is missing: give the folder of tasks")
  folder = Path(_TASKS.value)
  if not folder.is_dir():
    raise UserError(f"--tasks={folder} is not a folder")
  check_backend(backend())
  with only_writer(folder, "audit"):
    summary = asyncio.run(audit(folder, _CONCURRENCY.value, backend()))
  print(
      f"{summary['admitted']} admitted, {summary['rejected']} rejected,"
      f" {summary['already_rejected']} already rejected,"
      f" {summary['undecided']} undecided; see {folder / 'audit.json'}"
  )
  for name, causes in sorted(summary["causes"].items()):
    print(f"  {name}: {'; '.join(causes)}")
  if summary["undecided"]:
    raise UserError("some tasks are undecided: run the same command again")
  if summary["rejected"] and not _ALLOW.value:
    raise UserError(
        f"{summary['rejected']} tasks were rejected and moved to"
        f" {folder / 'rejected'}; with --allow_rejected that is no error"
    )
  return summary


if __name__ == "__main__":
  cli.run(main)
