"""A task: what the agent is asked, what it sees, how its work is judged.

A task is a directory that a person can read:

  task.json      this record
  workspace/     what the agent sees, copied into its sandbox
  services/      optional: what the mock services hold at the start
  checks/        check.py and its data, never visible to the agent
  rubric.json    optional: criteria for a judge
  solution/      calls.json: the tool calls that solve it, never visible

`load_task` checks all of it, so a `Task` in hand is whole. The solution's
calls hold only literals that the instruction or an earlier tool result gives.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError, require
from clawgym_jax.contracts.files import inside
from clawgym_jax.contracts.git import check_git
from clawgym_jax.contracts.rubric import Criterion, read_rubric, rubric_record
from clawgym_jax.contracts.services import check_services

SPLITS = ("train", "heldout")
MOST_BYTES = 64 << 20  # of a workspace: what a sandbox's own bound admits


@dataclass(frozen=True)
class Limits:
  """Bounds of one attempt: model calls, and seconds from start to stop."""

  turns: int = 8
  seconds: float = 120.0


@dataclass(frozen=True)
class SolutionCall:
  """One tool call of the reference solution, in the Claw tool set."""

  name: str
  arguments: dict[str, Any]


@dataclass(frozen=True)
class Task:
  """The contents of task.json. `root` is where it was loaded from."""

  id: str
  instruction: str
  family: str
  split: str
  category: str
  operations: tuple[str, ...]
  difficulty: int = 1
  macro_category: str = ""
  skills: tuple[str, ...] = ()
  persona: dict[str, str] = field(default_factory=dict)
  hazard: str = "none"
  now: str = "2026-01-05T09:00:00Z"  # the clock that harness and checks see
  requires: tuple[str, ...] = ()
  limits: Limits = Limits()
  network: str = "none"
  check_weights: dict[str, float] = field(default_factory=dict)
  provenance: dict[str, Any] = field(default_factory=dict)
  root: Path | None = field(default=None, compare=False)

  @property
  def workspace(self) -> Path:
    return _rooted(self) / "workspace"

  @property
  def services(self) -> Path:
    """Seed files of the services it requires; may be absent."""
    return _rooted(self) / "services"

  @property
  def checks(self) -> Path:
    return _rooted(self) / "checks"

  def solution(self) -> list[SolutionCall]:
    """The reference solution's calls, in order."""
    return [SolutionCall(c["name"], c["arguments"]) for c in self._solved()["calls"]]

  def final_message(self) -> str:
    """What the reference solution says to the user when it is done."""
    return self._solved()["final_message"]

  def rubric(self) -> tuple[Criterion, ...]:
    """Criteria for a judge; none where code says all."""
    return read_rubric(_rooted(self) / "rubric.json")

  def _solved(self) -> dict[str, Any]:
    path = _rooted(self) / "solution" / "calls.json"
    try:
      raw = json_text.parse(path.read_text())
    except (OSError, ValueError) as error:
      raise RecordError(f"{path} can't be read: {error}") from None
    calls = raw.get("calls") if isinstance(raw, dict) else None
    require(
        isinstance(calls, list)
        and all(
            isinstance(call, dict)
            and isinstance(call.get("name"), str)
            and isinstance(call.get("arguments"), dict)
            for call in calls
        )
        and isinstance(raw.get("final_message"), str),
        f"{path} needs calls, a list of {{name, arguments}}, and final_message",
    )
    _check_text(path, raw)
    return raw


def save_task(
    directory: Path,
    task: Task,
    *,
    workspace: dict[str, bytes],
    checks: dict[str, bytes],
    calls: list[SolutionCall],
    final_message: str,
    rubric: Sequence[Criterion] = (),
    services: dict[str, bytes] | None = None,
) -> Task:
  """Writes a task directory, whole or not at all; replaces one that is there.

  `workspace`, `checks` and `services` map relative paths to contents. The
  content hash in `provenance` covers everything but itself.
  """
  folders = {"workspace": workspace, "checks": checks}
  if services:
    folders["services"] = services
  partial = directory.with_name(f".{directory.name}.partial")
  shutil.rmtree(partial, ignore_errors=True)  # of one that was killed
  try:
    _write_task(partial, task, folders, calls, final_message, rubric)
    shutil.rmtree(directory, ignore_errors=True)
    partial.rename(directory)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return load_task(directory)


def _write_task(
    partial: Path,
    task: Task,
    folders: dict[str, dict[str, bytes]],
    calls: list[SolutionCall],
    final_message: str,
    rubric: Sequence[Criterion],
) -> None:
  for folder, files in folders.items():
    (partial / folder).mkdir(parents=True)
    for name, data in files.items():
      require(inside(name), f"{folder}/{name} leaves the task directory")
      path = partial / folder / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(data)
  _write_json(
      partial / "solution" / "calls.json",
      {
          "calls": [dataclasses.asdict(call) for call in calls],
          "final_message": final_message,
      },
  )
  if rubric:
    _write_json(partial / "rubric.json", rubric_record(rubric))
  record = dataclasses.asdict(task)
  record.pop("root")
  record["provenance"] = {
      **task.provenance,
      "content_hash": content_hash(partial, record),
  }
  _write_json(partial / "task.json", record)


def load_task(directory: Path) -> Task:
  """Reads and checks a task directory; `RecordError` names what is wrong."""
  path = directory / "task.json"
  try:
    raw = json_text.parse(path.read_text())
  except FileNotFoundError:
    raise RecordError(f"{directory} is not a task: it has no task.json") from None
  except ValueError as error:
    raise RecordError(f"{path} is not JSON: {error}") from None
  require(isinstance(raw, dict), f"{path} is not a JSON object")
  known = {f.name for f in dataclasses.fields(Task)} - {"root"}
  unknown = sorted(set(raw) - known)
  require(not unknown, f"{path} has unknown fields: {', '.join(unknown)}")
  _check_kinds(Task, raw, f"{path}: ")
  try:
    limits = raw.pop("limits", {})
    _check_kinds(Limits, limits, f"{path}: limits.")
    limits = Limits(**limits)
    for name in ("operations", "skills", "requires"):
      raw[name] = tuple(raw.get(name, ()))
    task = Task(**raw, limits=limits, root=directory)
  except TypeError as error:
    raise RecordError(f"{path}: {error}") from None
  _check_text(path, raw)
  require(bool(task.instruction.strip()), f"{path}: the instruction is empty")
  require(task.split in SPLITS, f"{path}: split {task.split!r} is not in {SPLITS}")
  require(bool(task.operations), f"{path}: no operations")
  for name, most in (("turns", 10_000), ("seconds", 86_400.0)):
    value = getattr(task.limits, name)
    require(0 < value <= most, f"{path}: limits.{name} = {value} is not in (0, {most}]")
  require(
      (directory / "checks" / "check.py").is_file(),
      f"{directory} has no checks/check.py, so it can't be scored",
  )
  require((directory / "workspace").is_dir(), f"{directory} has no workspace/")
  for name in ("workspace", "checks"):
    size = sum(p.lstat().st_size for p in (directory / name).rglob("*"))
    require(
        size <= MOST_BYTES,
        f"{directory}/{name} has {size} bytes; a sandbox holds {MOST_BYTES}",
    )
  check_services(task.services, task.requires)
  check_git(task.workspace)
  task.rubric()
  return task


def list_tasks(directory: Path) -> list[Path]:
  """The task directories directly below `directory`, sorted by name."""
  return sorted(p.parent for p in directory.glob("[!.]*/task.json"))


def content_hash(directory: Path, record: dict[str, Any]) -> str:
  """SHA-256 over the record (less its own hash) and every other file."""
  digest = hashlib.sha256()
  provenance = {
      k: v for k, v in record.get("provenance", {}).items() if k != "content_hash"
  }
  digest.update(
      json.dumps({**record, "provenance": provenance}, sort_keys=True).encode()
  )
  for path in sorted(directory.rglob("*")):
    if path.is_file() and path != directory / "task.json":
      digest.update(str(path.relative_to(directory)).encode() + b"\0")
      digest.update(hashlib.sha256(path.read_bytes()).digest())
  return digest.hexdigest()


def _write_json(path: Path, value: Any) -> None:
  path.parent.mkdir(exist_ok=True)
  path.write_text(json_text.dump(value, indent=1) + "\n")


def _check_text(path: Path, raw: Any) -> None:
  try:
    json.dumps(raw, ensure_ascii=False).encode()
  except UnicodeEncodeError:
    raise RecordError(f"{path} holds half of a surrogate pair, which is no text") from None


def _check_kinds(record: type, raw: dict[str, Any], where: str) -> None:
  """Each value of `raw` is what the field of `record` says, as JSON has it."""
  for name, kind in typing.get_type_hints(record).items():
    if name in raw:
      require(
          _fits(raw[name], kind),
          f"{where}{name} must be of type {getattr(kind, '__name__', kind)}, not"
          f" {json.dumps(raw[name])[:80]}",
      )


def _fits(value: Any, kind: Any) -> bool:
  outer, inner = typing.get_origin(kind), typing.get_args(kind)
  if outer is tuple:
    return isinstance(value, list) and all(_fits(item, inner[0]) for item in value)
  if outer is dict:
    return isinstance(value, dict) and all(
        _fits(item, inner[1]) for item in value.values()
    )
  if kind is Any:
    return True
  if kind in (int, float):
    return isinstance(value, (int, kind)) and not isinstance(value, bool)
  return isinstance(value, dict if dataclasses.is_dataclass(kind) else kind)


def _rooted(task: Task) -> Path:
  require(task.root is not None, f"task {task.id} was not loaded from a directory")
  return task.root
