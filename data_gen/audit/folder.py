"""Admits the tasks of a folder, or moves them to DIR/rejected with their causes.

Each is tried by `trial`; of those that are the same work, or nearly the same
request, only the first stays. A task that can't even be loaded is rejected. A run
that the platform lost, or that the host had no means for, decides nothing: the
task stays, counted as undecided, and the same command tries it again. A fault of
our own ends the audit. Verdicts are kept in DIR/audit.json by content hash;
what an earlier run rejected is reported but is no error of this one.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawgym_jax import cli
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.files import write_json
from clawgym_jax.contracts.task import Task, content_hash, list_tasks, load_task
from data_gen.audit import meaning, near, same
from data_gen.audit.court import Court
from data_gen.audit.meaning import Requests, Vectors
from data_gen.audit.report import figures, table
from data_gen.audit.trial import Findings, Rebuild, Undecided, attacks, judge
from data_gen.draft import REGISTRY
from sandbox.backends.base import gather
from sandbox.harnesses import ADVERSARIES, asked_of

VERSION = 4
_THOROUGH = 3  # tasks of a family of ours whose solutions always run elsewhere too
_SAVE_SECONDS = 5.0
_SAVE_SHARE = 20  # times what the last save took pass before the next

_BROKEN_RECORD = (ValueError, KeyError, TypeError, AttributeError)
# What a task's own files can be wrong in; any other OSError is the host's.
_BROKEN_FILES = (
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


async def audit(
    folder: Path,
    concurrency: int,
    backend: str = "bubblewrap",
    *,
    rebuild: Rebuild | None = None,
    against: Path | None = None,
    vectors: Vectors | None = None,
) -> dict[str, Any]:
  """Judges every task of `folder` that has no verdict yet; the counts.

  `rebuild` makes a task over other records, where it can; a task must not be
  the same request as one of `against`, which is the other side of the split.
  Requests are compared by their words, and where there are `vectors` by meaning, too.
  """
  kept = _kept(folder / "audit.json")
  names = sorted(
      p.name
      for p in folder.iterdir()
      if p.is_dir() and p.name != "rejected" and not p.name.startswith(".")
  )
  if not names and not kept:
    raise UserError(f"{folder} holds no tasks: make some with data_gen.synthesize")
  others, done_there = _other_side(against)
  bar = cli.progress(len(names), "audit", unit="task")
  known = {name: kept[name] for name in names if name in kept}
  gone = kept.keys() - known.keys()
  earlier = {n: kept[n] for n in gone if kept[n]["verdict"] == "rejected"}
  verdicts = dict(earlier)
  undecided: dict[str, str] = {}
  asked: dict[str, tuple[str, str]] = {}
  works: dict[str, str] = {}
  families: Counter[str] = Counter()
  waiting = iter(names)
  leaving: list[str] = []

  def save() -> None:
    """A rejected task goes once its verdict is kept; killed before, it goes later."""
    _save(folder, {**known, **verdicts})
    while leaving:
      _reject(folder, leaving.pop())

  saves = _Saves(save)

  async def verdict_of(name: str, court: Court) -> dict[str, Any]:
    task, digest = _loaded(folder / name)
    asked[name], works[name] = _request(task), same.work(task)
    families[task.family] += 1
    if known.get(name, {}).get("hash") == digest:
      return known[name]
    thorough = families[task.family] <= _THOROUGH
    found = await judge(
        task, backend, rebuild=rebuild, thorough=thorough, court=court
    )
    return _verdict(task, digest, found)

  async def work() -> None:
    async with Court(backend) as court:
      for name in waiting:
        try:
          verdicts[name] = await verdict_of(name, court)
        except _Unreadable as error:
          verdicts[name] = _rejected("", [f"broken: {error}"])
        except Undecided as error:
          undecided[name] = str(error)
        if verdicts.get(name, {}).get("verdict") == "rejected":
          leaving.append(name)
        bar.update()
        saves.now_and_then()

  try:
    await asyncio.gather(*(work() for _ in range(concurrency)))
    works = {n: w for n, w in works.items() if _admitted(verdicts.get(n))}
    leaving += _same_work(verdicts, works, done_there)
    asked = {n: t for n, t in asked.items() if _admitted(verdicts.get(n))}
    leaving += _alike(verdicts, asked, others)
    if vectors:
      asked = {n: t for n, t in asked.items() if _admitted(verdicts[n])}
      leaving += _same_meaning(verdicts, asked, others, vectors)
  finally:
    bar.close()
    saves.now()
  return _summary(verdicts, undecided, len(earlier))


def rejected(folder: Path) -> set[str]:
  """The names of the tasks of `folder` that an audit has rejected."""
  kept = _kept(folder / "audit.json")
  return {name for name, verdict in kept.items() if verdict["verdict"] == "rejected"}


class _Unreadable(Exception):
  """A task's own files are wrong."""


def _loaded(directory: Path) -> tuple[Task, str]:
  """The task and the hash that its verdict is kept by."""
  try:
    task = load_task(directory)
    task.reference()  # only to see that it can be read
    return task, _digest(directory)
  except (RecordError, *_BROKEN_FILES, *_BROKEN_RECORD) as error:
    raise _Unreadable(f"{type(error).__name__}: {error}") from error
  except OSError as error:
    raise Undecided(f"{type(error).__name__}: {error}") from error


def _verdict(task: Task, digest: str, found: Findings) -> dict[str, Any]:
  attacked = ("null", *ADVERSARIES)
  return {
      "verdict": "rejected" if found.causes else "admitted",
      "hash": digest,
      "family": task.family,
      "turns": len(task.user_turns),
      "hazard": task.hazard,
      "causes": found.causes,
      "attacks": {name: score for name, score in found.attacks.items() if score},
      "idle": [name for name in attacked if name not in found.attacks],
      "mutants": found.mutants,
      "survivors": found.survivors,
      "reseeded": found.reseeded,
      "work": found.work,
      "criteria": len(task.rubric()),
  }


def _rejected(digest: str, causes: list[str]) -> dict[str, Any]:
  return {"verdict": "rejected", "hash": digest, "causes": causes}


def _admitted(verdict: dict[str, Any] | None) -> bool:
  return verdict is not None and verdict["verdict"] == "admitted"


async def attack_table(
    folder: Path, concurrency: int, backend: str = "bubblewrap"
) -> dict[str, Any]:
  """What doing nothing and the adversaries score on every task of `folder`, which
  stays as it is: tasks of any source, solved or not. Kept in DIR/attacks.json by
  content hash, as verdicts are; the same command goes on after a stop."""
  directories = list_tasks(folder)
  if not directories:
    raise UserError(f"{folder} holds no tasks")
  path = folder / "attacks.json"
  here = {directory.name for directory in directories}
  known = {name: kept for name, kept in _kept(path).items() if name in here}
  tried: dict[str, dict[str, Any]] = {}
  failed: dict[str, str] = {}
  bar = cli.progress(len(directories), "attacks", unit="task")
  waiting = iter(directories)

  def found() -> dict[str, Any]:
    return {"attacks": table(tried.values()), "failed": dict(sorted(failed.items()))}

  def save() -> None:
    tasks = dict(sorted({**known, **tried}.items()))
    write_json(path, {"version": VERSION, **found(), "tasks": tasks})

  saves = _Saves(save)

  async def scores_of(directory: Path) -> dict[str, Any]:
    task = load_task(directory)
    digest = _digest(directory)
    if known.get(directory.name, {}).get("hash") == digest:
      return known[directory.name]
    scores = await attacks(task, backend)
    unscored = [name for name, score in scores.items() if score is None]
    scored = {name: score for name, score in scores.items() if score}
    return {"hash": digest, "attacks": scored, "idle": unscored}

  async def work() -> None:
    for directory in waiting:
      try:
        tried[directory.name] = await scores_of(directory)
      except (RecordError, Undecided) as error:
        failed[directory.name] = str(error)
      bar.update()
      saves.now_and_then()

  try:
    await asyncio.gather(*(work() for _ in range(concurrency)))
  finally:
    bar.close()
    saves.now()
  return found()


def _digest(directory: Path) -> str:
  """What verdicts and scores of a task are kept by."""
  record = json_text.parse((directory / "task.json").read_text())
  return f"{VERSION}:{content_hash(directory, record)}"


class _Saves:
  """Saves now and then, so that saving takes a small share of the time."""

  def __init__(self, save: Callable[[], None]):
    self._save = save
    self._last, self._seconds = time.monotonic(), 0.0

  def now_and_then(self) -> None:
    if time.monotonic() - self._last > max(_SAVE_SECONDS, _SAVE_SHARE * self._seconds):
      self.now()

  def now(self) -> None:
    started = time.monotonic()
    self._save()
    self._last = time.monotonic()
    self._seconds = self._last - started


def _other_side(
    folder: Path | None,
) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
  """Category and request, and the work, of each task there."""
  directories = list_tasks(folder) if folder else []
  tasks = {f"{folder}/{d.name}": load_task(d) for d in directories}
  asked = {name: _request(task) for name, task in tasks.items()}
  return asked, {name: same.work(task) for name, task in tasks.items()}


def _request(task: Task) -> tuple[str, str]:
  """What is compared of a task, within its category. A compact task's few words
  come again over other files by design, so with them goes what its files hold."""
  if task.family not in REGISTRY:
    return task.category, asked_of(task)
  files = (data.decode(errors="ignore") for data in gather(task.workspace).values())
  return task.category, "\n".join([asked_of(task), *files])


def _same_work(
    verdicts: dict[str, dict[str, Any]], works: dict[str, str], others: dict[str, str]
) -> list[str]:
  """Of tasks that are the same work the first stays; the names of the rest."""
  found = same.earlier(works, others)
  for name, other in found.items():
    causes = {"verdict": "rejected", "causes": [same.cause(other)]}
    verdicts[name] = {**verdicts[name], **causes}
  return list(found)


def _alike(
    verdicts: dict[str, dict[str, Any]], asked: Requests, others: Requests
) -> list[str]:
  """Of requests in nearly the same words the first stays; the names of the rest."""
  return _duplicates(
      verdicts, "nearest", near.nearest(asked, others),
      lambda similarity, other: similarity > near.MOST
      and f"duplicate: {similarity:.2f} of its request is that of {other}",
  )  # fmt: skip


def _same_meaning(
    verdicts: dict[str, dict[str, Any]],
    asked: Requests,
    others: Requests,
    vectors: Vectors,
) -> list[str]:
  """Of requests that mean nearly the same the first stays; the names of the rest."""
  return _duplicates(
      verdicts, "meant", meaning.nearest_by_meaning(asked, others, vectors),
      lambda cosine, other: cosine >= meaning.MOST
      and f"duplicate: its request means that of {other}, cosine {cosine:.2f}",
  )  # fmt: skip


def _duplicates(
    verdicts: dict[str, dict[str, Any]],
    kind: str,
    found: dict[str, tuple[float, str]],
    cause_of: Callable[[float, str], str | bool],
) -> list[str]:
  """Notes as `kind` what each is nearest to, and rejects those that have a cause."""
  leaving = []
  for name, (value, other) in found.items():
    verdict = {**verdicts[name], kind: [value, other]}
    if cause := cause_of(value, other):
      verdict |= {"verdict": "rejected", "causes": [cause]}
      leaving.append(name)
    verdicts[name] = verdict
  return leaving


def _kept(path: Path) -> dict[str, dict[str, Any]]:
  """What an earlier run found, by the task's name."""
  if not path.exists():
    return {}
  try:
    found = json_text.parse(path.read_text())
    judged, current = found["tasks"], found["version"] == VERSION
    # What an earlier version admitted is judged anew, what it rejected is gone.
    kept = lambda v: current or v.get("verdict") == "rejected"
    return {name: v for name, v in judged.items() if kept(v)}
  except (ValueError, KeyError, TypeError):
    raise UserError(f"{path} is damaged: remove it to judge all again") from None


def _save(folder: Path, verdicts: dict[str, dict[str, Any]]) -> None:
  write_json(
      folder / "audit.json",
      {
          "version": VERSION,
          **figures(verdicts),
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
      "figures": figures(verdicts),
  }
