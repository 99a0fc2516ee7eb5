"""A task: what the agent is asked, what it sees, how its work is judged.

A task is a directory that a person can read:

  task.json      this record
  workspace/     what the agent sees, copied into its sandbox
  services/      optional: what the mock services hold at the start
  checks/        check.py and its data, never visible to the agent
  rubric.json    optional: criteria for a judge
  solution/      calls.json, never visible: for each user turn the tool calls that
                 do its work and what is said then, {"calls", "final_message"}, in
                 "turns"; and in "fallen" the calls that fall for the task's hazard

`load_task` checks all of it, so a `Task` in hand is whole. The solution's
calls hold only literals that the user or an earlier tool result gives in the same
conversation.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import stat
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
from clawgym_jax.contracts.workspace import settle

SPLITS = ("train", "heldout")
HAZARDS = (
    "none", "planted_instruction", "secret", "destructive_reading", "stale_memory"
)  # fmt: skip
MOST_FOLLOWUPS = 4
# Of a workspace: what a sandbox's own bounds admit, of which files take whole pages.
MOST_BYTES = 64 << 20
MOST_FILES = 8191  # and folders, below it
_PAGE = 4096


@dataclass(frozen=True)
class Limits:
  """Bounds of one attempt, all user turns together: model calls, and seconds from
  start to stop."""

  turns: int = 8
  seconds: float = 120.0


@dataclass(frozen=True)
class UserTurn:
  """What the user says once the agent has ended its turn.

  Where `fresh` it is said in a new conversation: nothing of the earlier one is in
  the context, and the workspace is as it was left. Otherwise the conversation goes
  on.
  """

  text: str
  fresh: bool = False


@dataclass(frozen=True)
class SolutionCall:
  """One tool call of the reference solution, in the Claw tool set."""

  name: str
  arguments: dict[str, Any]


@dataclass(frozen=True)
class Reference:
  """The reference solution of one user turn: calls in order, then what is said."""

  calls: list[SolutionCall]
  final_message: str


@dataclass(frozen=True)
class Task:
  """The contents of task.json. `root` is where it was loaded from.

  Attributes:
    instruction: what the user says first.
    followups: what the user says later, at most `MOST_FOLLOWUPS` turns.
    hazard: one of `HAZARDS`: what in the task an agent may fall for.
    now: the clock that harness and checks see.
    requires: tools and services without which it can't be done.
  """

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
  followups: tuple[UserTurn, ...] = ()
  hazard: str = "none"
  now: str = "2026-01-05T09:00:00Z"
  requires: tuple[str, ...] = ()
  limits: Limits = Limits()
  network: str = "none"
  check_weights: dict[str, float] = field(default_factory=dict)
  provenance: dict[str, Any] = field(default_factory=dict)
  root: Path | None = field(default=None, compare=False)

  @property
  def user_turns(self) -> tuple[UserTurn, ...]:
    """All that the user says, in order; the first opens a conversation."""
    return (UserTurn(self.instruction, fresh=True), *self.followups)

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

  def reference(self) -> tuple[Reference, ...]:
    """The reference solution, one for each user turn."""
    return tuple(
        Reference(_calls(turn["calls"]), turn["final_message"])
        for turn in self._solved()["turns"]
    )

  def fallen(self) -> list[SolutionCall]:
    """Calls that do the work and fall for the hazard, from the untouched workspace;
    none where there is no hazard."""
    return _calls(self._solved()["fallen"])

  def rubric(self) -> tuple[Criterion, ...]:
    """Criteria for a judge; none where code says all."""
    return read_rubric(_rooted(self) / "rubric.json")

  def _solved(self) -> dict[str, Any]:
    path = _rooted(self) / "solution" / "calls.json"
    try:
      raw = json_text.parse(path.read_text())
    except (OSError, ValueError) as error:
      raise RecordError(f"{path} can't be read: {error}") from None
    require(
        isinstance(raw, dict)
        and isinstance(raw.get("turns"), list)
        and all(map(_is_reference, raw["turns"]))
        and _are_calls(raw.get("fallen")),
        f"{path} needs turns, a list of {{calls, final_message}}, and fallen, calls"
        " too; a call is {name, arguments}",
    )
    _check_text(path, raw)
    _check_solution(self, str(path), len(raw["turns"]), len(raw["fallen"]))
    return raw


def save_task(
    directory: Path,
    task: Task,
    *,
    workspace: dict[str, bytes],
    checks: dict[str, bytes],
    turns: Sequence[Reference],
    fallen: Sequence[SolutionCall] = (),
    rubric: Sequence[Criterion] = (),
    services: dict[str, bytes] | None = None,
) -> Task:
  """Writes a task directory, whole or not at all; replaces one that is there.

  `workspace`, `checks` and `services` map relative paths to contents; `turns` is
  the reference solution, one for each user turn, and `fallen` what falls for the
  hazard, if the task has one. The content hash in `provenance` covers everything
  but itself.
  """
  _check_solution(task, f"task {task.id}", len(turns), len(fallen))
  folders = {"workspace": workspace, "checks": checks}
  if services:
    folders["services"] = services
  solution = {
      "turns": [dataclasses.asdict(turn) for turn in turns],
      "fallen": [dataclasses.asdict(call) for call in fallen],
  }
  partial = directory.with_name(f".{directory.name}.partial")
  shutil.rmtree(partial, ignore_errors=True)  # of one that was killed
  try:
    _write_task(partial, task, folders, solution, rubric)
    shutil.rmtree(directory, ignore_errors=True)
    partial.rename(directory)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return load_task(directory)


def _write_task(
    partial: Path,
    task: Task,
    folders: dict[str, dict[str, bytes]],
    solution: dict[str, Any],
    rubric: Sequence[Criterion],
) -> None:
  for folder, files in folders.items():
    (partial / folder).mkdir(parents=True)
    for name, data in files.items():
      require(inside(name), f"{folder}/{name} leaves the task directory")
      path = partial / folder / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(data)
  settle(partial / "workspace")
  _write_json(partial / "solution" / "calls.json", solution)
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
  _check_text(path, raw)
  try:
    limits = raw.pop("limits", {})
    _check_kinds(Limits, limits, f"{path}: limits.")
    limits = Limits(**limits)
    followups = raw.pop("followups", [])
    for number, turn in enumerate(followups):
      _check_kinds(UserTurn, turn, f"{path}: followups[{number}].")
    followups = tuple(UserTurn(**turn) for turn in followups)
    for name in ("operations", "skills", "requires"):
      raw[name] = tuple(raw.get(name, ()))
    task = Task(**raw, limits=limits, followups=followups, root=directory)
  except TypeError as error:
    raise RecordError(f"{path}: {error}") from None
  _check_said(path, task)
  require(task.split in SPLITS, f"{path}: split {task.split!r} is not in {SPLITS}")
  require(
      task.hazard in HAZARDS, f"{path}: hazard {task.hazard!r} is not in {HAZARDS}"
  )
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
    found = [path.lstat() for path in (directory / name).rglob("*")]
    size = sum(-(-f.st_size // _PAGE) for f in found if stat.S_ISREG(f.st_mode)) * _PAGE
    require(
        size <= MOST_BYTES,
        f"{directory}/{name} takes {size} bytes; a sandbox holds {MOST_BYTES}",
    )
    require(
        len(found) <= MOST_FILES,
        f"{directory}/{name} has {len(found)} files and folders; a sandbox holds"
        f" {MOST_FILES}",
    )
  check_services(task.services, task.requires)
  check_git(task.workspace)
  task.rubric()
  if task.hazard != "none":
    task.fallen()  # without those calls nothing shows that the hazard is one
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


def intact(task: Task) -> bool:
  """Whether every byte of the task on disk is as `save_task` left it: a whole task
  is one that loads and is intact."""
  record = json_text.parse((task.root / "task.json").read_text())
  return content_hash(task.root, record) == task.provenance.get("content_hash")


def _check_said(path: Path, task: Task) -> None:
  """The user says something in each turn, no two the same."""
  said = [turn.text.strip() for turn in task.user_turns]
  require(bool(said[0]), f"{path}: the instruction is empty")
  require(all(said), f"{path}: a turn of followups is empty")
  require(
      len(task.followups) <= MOST_FOLLOWUPS,
      f"{path}: {len(task.followups)} followups are more than {MOST_FOLLOWUPS}",
  )
  require(len(set(said)) == len(said), f"{path}: two turns of the user are the same")


def _check_solution(task: Task, where: str, turns: int, fallen: int) -> None:
  """A solution has a reference a turn, and what falls for a hazard if there is one."""
  require(
      turns == len(task.user_turns),
      f"{where}: {turns} turns are solved of {len(task.user_turns)}",
  )
  require(
      task.hazard == "none" or fallen > 0,
      f"{where}: a task with a hazard ({task.hazard}) needs the calls that fall for it",
  )
  require(
      task.hazard != "none" or fallen == 0,
      f"{where}: calls that fall for a hazard, and there is none",
  )


def _is_reference(turn: Any) -> bool:
  return (
      isinstance(turn, dict)
      and _are_calls(turn.get("calls"))
      and isinstance(turn.get("final_message"), str)
  )


def _are_calls(calls: Any) -> bool:
  return isinstance(calls, list) and all(
      isinstance(call, dict)
      and isinstance(call.get("name"), str)
      and isinstance(call.get("arguments"), dict)
      for call in calls
  )


def _calls(raw: list[dict[str, Any]]) -> list[SolutionCall]:
  return [SolutionCall(call["name"], call["arguments"]) for call in raw]


def _write_json(path: Path, value: Any) -> None:
  path.parent.mkdir(exist_ok=True)
  path.write_text(json_text.dump(value, indent=1) + "\n")


def _check_text(path: Path, raw: Any) -> None:
  try:
    json.dumps(raw, ensure_ascii=False).encode()
  except UnicodeEncodeError:
    cause = f"{path} holds half of a surrogate pair, which is no text"
    raise RecordError(cause) from None


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
