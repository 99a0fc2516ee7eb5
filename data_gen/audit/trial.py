"""Tries one task in real sandboxes: is it sound?

The reference solution runs in a fresh sandbox, all user turns one after the other,
and scores 1, each of three times, and with another locale, time zone and date around
the checks. The same calls, with those around them too, score 1 over other records,
where the task can be made again so. Doing nothing, falling for the hazard and every
adversary score 0, nine in ten small wrong edits of the right result less than 1.
It allows at least ten such edits: of a result that is too small for them, whoever made
it, nothing could be said, so it is rejected. The calls of a task of others, which can't
be made again over other records, run elsewhere: another day, another locale and zone.
What its files say is in `reading`, what its rubric may ask in `rubric`, what a set of
tasks must be in `folder`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from clawgym_jax.contracts.task import Task
from clawgym_jax.contracts.trajectory import Outcome
from data_gen.audit import reading, rubric
from data_gen.audit.court import (
    ELSEWHERE,
    OTHER_NOW,
    RESEEDED,
    Court,
    elsewhere,
    shared,
)
from data_gen.audit.judging import Case, Judge
from data_gen.audit.provenance import invented
from data_gen.audit.shares import work_of
from data_gen.mutation import LEAST, Mutant, mutants, spoiled
from sandbox import services
from sandbox.backends import Sandbox, SandboxError, SandboxLost, open_sandbox
from sandbox.backends.base import Files, gather, pack, unpack
from sandbox.harnesses import (
    ADVERSARIES,
    Adversary,
    Harness,
    HarnessContext,
    asked_of,
    load,
)
from sandbox.harnesses.base import answering
from sandbox.harnesses.reference import Fallen
from sandbox.verify import State, verify

LEAST_KILLED = 0.9  # of a task's wrong edits; below, its checks are too lax
RESEED = 1

# Workspace, checks and the services' files over other records; None for a task
# that can't be made again.
Rebuild = Callable[[Task, int], tuple[Files, Files, Files] | None]


class Undecided(Exception):
  """A run that was lost for no fault of the task."""


class _Broken(Exception):
  """The checks don't judge: the cause is in the list."""


@dataclass
class Findings:
  """What a trial showed; the task is sound where `causes` is empty.

  Attributes:
    attacks: the score of doing nothing and of each adversary that did something
      else than the solution.
    mutants: wrong edits that were judged; `survivors` are those that lost nothing.
    reseeded: whether the solution ran over other records too.
    work: how much work the task is, see `shares.work_of`.
  """

  causes: list[str] = field(default_factory=list)
  attacks: dict[str, float] = field(default_factory=dict)
  mutants: int = 0
  survivors: list[str] = field(default_factory=list)
  reseeded: bool = False
  work: dict[str, Any] = field(default_factory=dict)


async def judge(
    task: Task,
    backend: str = "bubblewrap",
    *,
    rebuild: Rebuild | None = None,
    thorough: bool = False,
    court: Court | None = None,
) -> Findings:
  """Tries `task`; where `thorough`, a solution of ours also runs elsewhere though
  there are no other records, and is judged by the task's checks as they stand. That of
  others always does.

  The states of a task of our own are judged in `court`, where those of other tasks
  may be too; those of others each in a fresh sandbox.
  """
  try:
    async with AsyncExitStack() as stack:
      court = court or await stack.enter_async_context(Court(backend))
      trial = _Trial(task, backend, rebuild, court)
      await trial.run(stack, thorough)
  except _Broken:
    pass
  except (SandboxLost, OSError) as error:
    raise Undecided(f"{type(error).__name__}: {error}") from error
  except SandboxError as error:
    trial.found.causes.append(f"sandbox: {error}")
  return trial.found


async def attacks(task: Task, backend: str = "bubblewrap") -> dict[str, float | None]:
  """What doing nothing and each adversary score; None where the checks gave no
  result. It needs no solution."""
  try:
    async with AsyncExitStack() as stack:
      court = await stack.enter_async_context(Court(backend))
      trial = _Trial(task, backend, None, court)
      sandbox = await trial.open(stack)
      left = await trial.left_by_adversaries(sandbox)
      outcomes = await trial.judge.outcomes([trial.null, *left])
  except (SandboxLost, SandboxError, OSError) as error:
    raise Undecided(f"{type(error).__name__}: {error}") from error
  lost = [o.cause for o in outcomes if (o.cause or "").startswith("verifier_lost")]
  if lost:
    raise Undecided(lost[0])
  names = ("null", *ADVERSARIES)
  return {name: o.code for name, o in zip(names, outcomes, strict=True)}


class _Trial:
  """One task's trial, as far as it has come."""

  def __init__(self, task: Task, backend: str, rebuild: Rebuild | None, court: Court):
    self._task, self._backend = task, backend
    self._initial = gather(task.workspace)
    checks = shared(task)
    self._other = rebuild(task, RESEED) if rebuild and checks else None
    self.judge = Judge(task, court, checks, self._other[1] if self._other else None)
    self.found = Findings()

  async def open(self, stack: AsyncExitStack) -> Sandbox:
    """A sandbox with the task in it."""
    task = self._task
    sandbox = await stack.enter_async_context(self._sandbox(task.now))
    await sandbox.start(task.workspace)
    await services.stage(task, sandbox)
    return sandbox

  @property
  def null(self) -> Case:
    state = State(pack(self._initial), "", answering(self._task, ""))
    return Case("null", state)

  async def left_by_adversaries(self, sandbox: Sandbox) -> list[Case]:
    """The state that each of them leaves."""
    return [await self._left_by(load(name), sandbox) for name in ADVERSARIES]

  async def run(self, stack: AsyncExitStack, thorough: bool) -> None:
    task, found = self._task, self.found
    found.work = work_of(
        task, self._initial, [c for turn in task.reference() for c in turn.calls]
    )
    sandbox = await self.open(stack)
    right = await self._solve(task, sandbox)
    elsewhere = await self._solve_elsewhere(sandbox, thorough)
    fallen = await self._fall(sandbox) if task.hazard != "none" else None
    attacks = await self.left_by_adversaries(sandbox)
    wrong = self._wrong_edits(right)
    outcomes = await self._in_one_go(
        null=[self.null],
        oracle=[Case("oracle", right)],
        hazard=self._hazard(fallen, right) if fallen else [],
        wrong=[Case(w.what, w.state) for w in wrong],
        control=[Case("unstable: oracle", right)],
        attacks=attacks,
    )
    self._attacked("null", outcomes["null"][0])
    solved = self._is_right("oracle", outcomes["oracle"][0])
    found.causes += [
        f"provenance: {word!r} of a call is neither said nor shown before"
        for word in invented(task, right.transcript)[:5]
    ]
    work, first = unpack(right.snapshot), outcomes["oracle"][0]
    found.causes += reading.faults(task, self._initial, work)
    found.causes += rubric.faults(task, self._initial, work, first.checks)
    self._attacks(attacks, outcomes["attacks"], right if solved else None)
    for outcome in outcomes["hazard"]:
      if outcome.code > 0.0:
        found.causes.append(f"hazard: falling for it scores {outcome.code:g}")
    if solved:
      self._is_right("unstable: oracle", outcomes["control"][0])
      self._survived(wrong, outcomes["wrong"])
      await self._again(right, elsewhere)
      if thorough and self.judge.at_once:
        await self._as_it_stands(right)

  def _sandbox(self, now: str) -> Sandbox:
    return open_sandbox(
        self._backend, run_id="audit", now=now, folders=services.folders(self._task)
    )

  # Running

  async def _solve(self, task: Task, sandbox: Sandbox) -> State:
    """The state that the reference solution leaves."""
    return await self._run(load("oracle"), task, sandbox)

  async def _fall(self, sandbox: Sandbox) -> State:
    """The state that falling for the hazard leaves."""
    await self._untouched(sandbox)
    return await self._run(Fallen(), self._task, sandbox)

  async def _run(self, harness: Harness, task: Task, sandbox: Sandbox) -> State:
    before = len(sandbox.reports)
    result = await harness.run(HarnessContext(task, sandbox))
    return State(
        await sandbox.snapshot(),
        result.final_message,
        result.transcript,
        services.effects(sandbox.reports[before:]),
    )

  async def _solve_elsewhere(self, sandbox: Sandbox, thorough: bool) -> Case | None:
    """The state that the same calls leave with another locale, zone and date, over
    other records where there are any."""
    task = elsewhere(self._task)
    if self._other:
      await self._on_other_records(sandbox)
      state = await self._solve(task, sandbox)
      return Case("over other records oracle", state, RESEEDED)
    if self.judge.at_once and not thorough:
      return None
    async with self._sandbox(OTHER_NOW) as other_day:
      await other_day.start(self._task.workspace)
      await services.stage(self._task, other_day)
      state = await self._solve(task, other_day)
      return Case("elsewhere oracle", state, ELSEWHERE)

  async def _on_other_records(self, sandbox: Sandbox) -> None:
    workspace, _, seeds = self._other
    await self._clean(sandbox, workspace)
    staged = services.files(self._task)
    if staged:
      await sandbox.restore(pack({**staged, **seeds}), services.FOLDER)

  async def _left_by(self, adversary: Adversary, sandbox: Sandbox) -> Case:
    """The state that an adversary leaves."""
    asked = asked_of(self._task)
    if not adversary.commands(asked):
      written, final = adversary.forge(asked, self._initial)
      files = pack(_laid(self._initial, written))
      return Case(adversary.name, State(files, final, answering(self._task, final)))
    await self._untouched(sandbox)
    before = len(sandbox.reports)
    result = await adversary.run(HarnessContext(self._task, sandbox))
    await sandbox.quiet()
    reports = services.effects(sandbox.reports[before:])
    snapshot = await sandbox.snapshot()
    state = State(snapshot, result.final_message, result.transcript, reports)
    return Case(adversary.name, state)

  async def _untouched(self, sandbox: Sandbox) -> None:
    """All in the sandbox is as the agent is given it."""
    await self._clean(sandbox, self._initial)
    await services.stage(self._task, sandbox)

  async def _clean(self, sandbox: Sandbox, files: Files) -> None:
    """Nothing runs and nothing is left in the sandbox but `files`."""
    await sandbox.quiet()
    folders = " ".join((".", "/tmp", "/dev/shm", *services.folders(self._task)))
    await sandbox.exec(
        f"find {folders} -mindepth 1 -delete 2>/dev/null; [ -d /tmp/home ] || mkdir /tmp/home"
    )
    await sandbox.restore(pack(files))

  # Judging

  async def _in_one_go(self, **parts: list[Case]) -> dict[str, list[Outcome]]:
    """The outcomes of each part; those that go alone should come last."""
    outcomes = iter(await self._scored([c for part in parts.values() for c in part]))
    return {name: [next(outcomes) for _ in part] for name, part in parts.items()}

  async def _scored(self, cases: list[Case]) -> list[Outcome]:
    """The outcomes; `_Broken` where one has no score."""
    outcomes = await self.judge.outcomes(cases)
    for case, outcome in zip(cases, outcomes, strict=True):
      self._must_score(case.name, outcome)
    return outcomes

  def _must_score(self, name: str, outcome: Outcome) -> None:
    if outcome.code is None:
      cause = outcome.cause or "unscored"
      if cause.startswith("verifier_lost"):
        raise Undecided(cause)
      self.found.causes.append(f"{name}: {cause}")
      raise _Broken  # of every other result it would say the same

  def _is_right(self, name: str, outcome: Outcome) -> bool:
    wrong = [check for check, value in outcome.checks.items() if value < 1.0]
    if outcome.code != 1.0:
      self.found.causes.append(f"{name} scores {outcome.code:g}, fails {wrong}")
    return outcome.code == 1.0

  def _attacked(self, name: str, outcome: Outcome) -> None:
    self.found.attacks[name] = outcome.code
    if outcome.code > 0.0:
      self.found.causes.append(f"{name} scores {outcome.code:g}")

  def _attacks(
      self, left: list[Case], outcomes: list[Outcome], right: State | None
  ) -> None:
    """Every adversary; one that leaves the very files and side effects of the
    solution has done the work."""
    done = _end(right) if right else (self._initial, [])
    for case, outcome in zip(left, outcomes, strict=True):
      if done == (self._initial, []) or _end(case.state) != done:
        self._attacked(case.name, outcome)

  def _hazard(self, fallen: State, right: State) -> list[Case]:
    """What falling for the hazard leaves, which must be work that another end gives
    away."""
    untouched = State(pack(self._initial))
    for other, what in ((right, "the solution"), (untouched, "doing nothing")):
      if _end(fallen) == _end(other):
        self.found.causes.append(
            f"hazard: falling for it leaves the very state that {what} leaves"
        )
        return []
    return [Case("hazard: falling for it", fallen)]

  def _wrong_edits(self, right: State) -> list[Mutant]:
    """A result that is wrong in all it did, then those that are in one thing."""
    asked = None if self.judge.at_once else asked_of(self._task)
    return [
        spoiled(self._initial, right),
        *mutants(self._initial, right, self._task.id, asked=asked),
    ]

  def _survived(self, wrong: list[Mutant], outcomes: list[Outcome]) -> None:
    found = self.found
    if outcomes[0].code == 1.0:
      found.causes.append("a spoiled result still scores 1")
      return
    found.mutants = len(wrong) - 1
    if found.mutants < LEAST:
      found.causes.append(
          f"too small: {found.mutants} wrong edits can be made of the result, {LEAST}"
          " are needed"
      )
    found.survivors = [
        mutant.what
        for mutant, outcome in zip(wrong[1:], outcomes[1:], strict=True)
        if outcome.code == 1.0
    ]
    killed = found.mutants - len(found.survivors)
    if killed < LEAST_KILLED * found.mutants:
      found.causes.append(
          f"lax: only {killed} of {found.mutants} wrong edits lose reward;"
          f" not {'; '.join(found.survivors[:3])}"
      )

  async def _again(self, right: State, elsewhere: Case | None) -> None:
    """The solution's state once more, then with another locale, time zone and date
    around the checks, and what the calls left elsewhere: in a process of their own."""
    cases = [Case("unstable: oracle", right)]
    if self.judge.at_once:
      cases.append(Case("with another locale and date oracle", right, ELSEWHERE))
    if elsewhere:
      cases.append(elsewhere)
    for case, outcome in zip(cases, await self._scored(cases), strict=True):
      fine = self._is_right(case.name, outcome)
      self.found.reseeded |= fine and case.by == RESEEDED

  async def _as_it_stands(self, right: State) -> None:
    """The task's own checks in a sandbox of their own, not the copy that is quick."""
    outcome = await verify(
        self._task, right.snapshot, right.final_message, right.transcript,
        reports=right.reports, backend=self._backend, run_id="audit",
    )  # fmt: skip
    self._must_score("oracle alone", outcome)
    self._is_right("oracle alone", outcome)


def _end(state: State) -> tuple[Files, list[tuple[str, Any]]]:
  """What a run left: its files and, without their times, its side effects."""
  return unpack(state.snapshot), [(r["service"], r["data"]) for r in state.reports]


def _laid(files: Files, written: Files) -> Files:
  """`files` with those written; a file where a folder is, or a folder where a file
  is, can't be written, as in a sandbox."""
  laid = dict(files)
  folders = {parent for path in files for parent in _parents(path)}
  for path, data in written.items():
    clean = PurePosixPath(path)
    if clean.is_absolute() or {"..", "~"} & set(clean.parts):
      continue
    path = str(clean)
    parents = _parents(path)
    if path not in folders and not any(p in laid for p in parents):
      laid[path] = data
      folders |= set(parents)
  return laid


def _parents(path: str) -> list[str]:
  """The folders above a clean path."""
  parts = path.split("/")[:-1]
  return [".", *("/".join(parts[: n + 1]) for n in range(len(parts)))]
