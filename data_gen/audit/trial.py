"""Tries one task in real sandboxes: is it sound?

The reference solution runs in a fresh sandbox and scores 1, three times over,
and with another locale, time zone and date around the checks; the same calls
score 1 over other records, where the task can be rebuilt so. Doing nothing and
every adversary score 0, small wrong edits of the right result less than 1.
What its files say is in `reading`, what a set of tasks must be in `folder`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from clawgym_jax.contracts.task import Task
from clawgym_jax.contracts.trajectory import Outcome
from data_gen.audit import reading
from data_gen.audit.bundle import ELSEWHERE, OTHER_NOW, OWN, RESEEDED, bundle
from data_gen.audit.provenance import invented
from data_gen.mutation import mutants, spoiled
from sandbox import services
from sandbox.backends import Sandbox, SandboxError, SandboxLost, open_sandbox
from sandbox.backends.base import Files, gather, pack, unpack
from sandbox.harnesses import ADVERSARIES, Adversary, HarnessContext, asked_of, load
from sandbox.verify import State, Verifier, verify
from sandbox.verify.many import trusted

LEAST_KILLED = 0.9  # of a task's wrong edits; below, its checks are too lax
RESEED = 1
_ORACLE_RUNS = 3

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
  """

  causes: list[str] = field(default_factory=list)
  attacks: dict[str, float] = field(default_factory=dict)
  mutants: int = 0
  survivors: list[str] = field(default_factory=list)
  reseeded: bool = False


async def judge(
    task: Task,
    backend: str = "bubblewrap",
    *,
    rebuild: Rebuild | None = None,
    thorough: bool = False,
) -> Findings:
  """Tries `task`; where `thorough`, runs its solution again on another day, and
  judges it by the task's checks as they stand.

  All states of a task of our own are judged in one sandbox, by a copy of it
  that has more expectations; those of others each in a fresh one.
  """
  trial = _Trial(task, backend, rebuild)
  try:
    async with AsyncExitStack() as stack:
      await trial.run(stack, thorough)
  except _Broken:
    pass
  except (SandboxLost, OSError) as error:
    raise Undecided(f"{type(error).__name__}: {error}") from error
  except SandboxError as error:
    trial.found.causes.append(f"sandbox: {error}")
  return trial.found


class _Trial:
  """One task's trial, as far as it has come."""

  def __init__(self, task: Task, backend: str, rebuild: Rebuild | None):
    self._task, self._backend = task, backend
    self._initial = gather(task.workspace)
    self._shares = trusted(task)
    self._other = rebuild(task, RESEED) if rebuild and self._shares else None
    self._verifier: Verifier | None = None
    self.found = Findings()

  async def run(self, stack: AsyncExitStack, thorough: bool) -> None:
    task, found = self._task, self.found
    judged_by = task
    if self._shares:
      place = Path(stack.enter_context(tempfile.TemporaryDirectory())) / task.root.name
      judged_by = bundle(task, place, self._other and self._other[1])
    self._verifier = await stack.enter_async_context(
        Verifier(judged_by, backend=self._backend, run_id="audit")
    )
    await self._attack("null", State(pack(self._initial), "", _asked(task)))
    sandbox = await stack.enter_async_context(self._open(task.now))
    await sandbox.start(task.workspace)
    await services.stage(task, sandbox)
    right = await self._solve(task, sandbox)
    # At once what `right` gives, so that nothing lasting from it can help others.
    solved = await self._oracle("oracle", right)
    found.causes += [
        f"provenance: {word!r} of a call is neither said nor shown before"
        for word in invented(task, right.transcript)[:5]
    ]
    found.causes += reading.faults(task, self._initial, unpack(right.snapshot))
    await self._attacks(sandbox, right if solved else None)
    if solved:
      await self._wrong_edits(right)
      if self._other:
        await self._reseeded(sandbox)
      await self._again(right)
      if thorough:
        await self._another_day(judged_by, right)

  def _open(self, now: str) -> Sandbox:
    return open_sandbox(
        self._backend, run_id="audit", now=now, folders=services.folders(self._task)
    )

  async def _solve(self, task: Task, sandbox: Sandbox) -> State:
    """The state that the reference solution leaves."""
    before = len(sandbox.reports)
    result = await load("oracle").run(HarnessContext(task, sandbox))
    return State(
        await sandbox.snapshot(),
        result.final_message,
        result.transcript,
        services.effects(sandbox.reports[before:]),
    )

  async def _judge(self, name: str, state: State, by: str = OWN) -> Outcome:
    """The outcome of a state by some expectations; `_Broken` where there is none."""
    if self._shares:
      first = {"role": "audit", "content": by}
      state = replace(state, transcript=[first, *state.transcript])
    outcome = await self._verifier.judge(state)
    if outcome.score is None:
      self._unscored(name, outcome)
    return outcome

  def _unscored(self, name: str, outcome: Outcome) -> None:
    cause = outcome.cause or "unscored"
    if cause.startswith("verifier_lost"):
      raise Undecided(cause)
    self.found.causes.append(f"{name}: {cause}")
    raise _Broken  # of every other result it would say the same

  async def _oracle(self, name: str, state: State, by: str = OWN) -> bool:
    return self._is_right(name, await self._judge(name, state, by))

  def _is_right(self, name: str, outcome: Outcome) -> bool:
    wrong = [check for check, value in outcome.checks.items() if value < 1.0]
    if outcome.score != 1.0:
      cause = f"{name} scores {outcome.score:g}, fails {wrong}"
      self.found.causes.append(cause)
    return outcome.score == 1.0

  async def _attack(self, name: str, state: State) -> None:
    outcome = await self._judge(name, state)
    self.found.attacks[name] = outcome.score
    if outcome.score > 0.0:
      self.found.causes.append(f"{name} scores {outcome.score:g}")

  async def _attacks(self, sandbox: Sandbox, right: State | None) -> None:
    """Every adversary, in a clean sandbox where it runs commands.

    One that leaves the very files of the solution has done the work.
    """
    work = unpack(right.snapshot) if right else self._initial
    for name in ADVERSARIES:
      state = await self._fallen(load(name), sandbox)
      if work == self._initial or unpack(state.snapshot) != work:
        await self._attack(name, state)

  async def _fallen(self, adversary: Adversary, sandbox: Sandbox) -> State:
    """The state that an adversary leaves."""
    asked = asked_of(self._task)
    if not adversary.commands(asked):
      written, final = adversary.forge(asked, self._initial)
      files = _laid(self._initial, written)
      return State(pack(files), final, adversary.transcript(asked, final))
    await self._clean(sandbox, self._initial)
    await services.stage(self._task, sandbox)
    before = len(sandbox.reports)
    result = await adversary.run(HarnessContext(self._task, sandbox))
    await sandbox.quiet()
    reports = services.effects(sandbox.reports[before:])
    return State(
        await sandbox.snapshot(), result.final_message, result.transcript, reports
    )

  async def _clean(self, sandbox: Sandbox, files: Files) -> None:
    """Nothing runs and nothing is left in the sandbox but `files`."""
    await sandbox.quiet()
    folders = " ".join((".", "/tmp", "/dev/shm", *services.folders(self._task)))
    await sandbox.exec(
        f"find {folders} -mindepth 1 -delete 2>/dev/null; mkdir -p /tmp/home"
    )
    await sandbox.restore(pack(files))

  async def _wrong_edits(self, right: State) -> None:
    found = self.found
    outcome = await self._judge("spoiled", spoiled(self._initial, right).state)
    if outcome.score == 1.0:
      found.causes.append("a spoiled result still scores 1")
      return
    asked = None if self._shares else asked_of(self._task)
    for mutant in mutants(self._initial, right, self._task.id, asked=asked):
      found.mutants += 1
      outcome = await self._judge(mutant.what, mutant.state)
      if outcome.score == 1.0:
        found.survivors.append(mutant.what)
    killed = found.mutants - len(found.survivors)
    if killed < LEAST_KILLED * found.mutants:
      found.causes.append(
          f"lax: only {killed} of {found.mutants} wrong edits lose reward;"
          f" not {'; '.join(found.survivors[:3])}"
      )

  async def _reseeded(self, sandbox: Sandbox) -> None:
    """The same calls over other records."""
    workspace, _, seeds = self._other
    await self._clean(sandbox, workspace)
    staged = services.files(self._task)
    if staged:
      await sandbox.restore(pack({**staged, **seeds}), services.FOLDER)
    state = await self._solve(self._task, sandbox)
    self.found.reseeded = await self._oracle("over other records oracle", state, RESEEDED)

  async def _again(self, right: State) -> None:
    """The solution's state once more, after all others, and once elsewhere."""
    for _ in range(_ORACLE_RUNS - 1):
      if not await self._oracle("unstable: oracle", right):
        return
    if self._shares:
      await self._oracle("with another locale and date oracle", right, ELSEWHERE)

  async def _another_day(self, judged_by: Task, right: State) -> None:
    """The solution in a new sandbox with another date, locale and zone; its first
    result by the task's own checks, alone."""
    async with self._open(OTHER_NOW) as sandbox:
      await sandbox.start(self._task.workspace)
      await services.stage(self._task, sandbox)
      state = await self._solve(judged_by, sandbox)
    if await self._oracle("run on another day oracle", state, ELSEWHERE):
      name = "oracle alone"
      outcome = await verify(
          self._task, right.snapshot, right.final_message, right.transcript,
          reports=right.reports, backend=self._backend, run_id="audit",
      )  # fmt: skip
      if outcome.score is None:
        self._unscored(name, outcome)
      self._is_right(name, outcome)


def _laid(files: Files, written: Files) -> Files:
  """`files` with those written; a file where a folder is, or a folder where a file
  is, can't be written, as in a sandbox."""
  laid = dict(files)
  folders = {str(p) for path in files for p in Path(path).parents}
  for path, data in written.items():
    clean = Path(path)
    if clean.is_absolute() or {"..", "~"} & set(clean.parts):
      continue
    path = str(clean)
    parents = [str(p) for p in clean.parents]
    if path not in folders and not any(p in laid for p in parents):
      laid[path] = data
      folders |= set(parents)
  return laid


def _asked(task: Task) -> list[dict[str, str]]:
  return Adversary.transcript(asked_of(task), "")


