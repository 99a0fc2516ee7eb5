"""One idea's way to a task that the audit admits, or to the causes why not.

  idea → task → checks → solve → rubric → audit

What is found unsound goes back with its diagnostics and is mended, at most
`ROUNDS` times: values that the solver invented to the solver, criteria to their
writer, all else to a repair of the task and its checks. Each step is kept by the
content of what it was given, the audit's verdict too, so a way that was interrupted
is gone again at no cost, and ends the same.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from clawgym_jax.contracts.task import Task
from data_gen import audit
from data_gen.audit.report import kind_of
from data_gen.llm import prompts, replies
from data_gen.llm.cache import Cache
from data_gen.llm.endpoint import Lost
from data_gen.llm.model import Model, Unusable
from data_gen.llm.proposal import Proposal
from data_gen.llm.seeds import Seed
from data_gen.llm.settings import Settings
from data_gen.llm.solver import Solver
from data_gen.llm.tally import STAGES, Tally
from sandbox.backends.base import gather, pack
from sandbox.harnesses.base import answering
from sandbox.verify import verify

T = TypeVar("T")

ROUNDS = 3
_MOST_CAUSES = 12  # that are handed back or kept
_INVENTED, _CRITERIA = "provenance: ", "rubric: "  # causes that a note mends


@dataclass(frozen=True)
class Verdict:
  """How an idea ended: admitted, rejected, or lost, which decides nothing.

  Attributes:
    stage: the last one it was in.
    rounds: repairs it took.
    content_hash: of the task, where it is admitted.
  """

  verdict: str
  stage: str
  causes: tuple[str, ...] = ()
  rounds: int = 0
  content_hash: str = ""


@dataclass(frozen=True)
class Line:
  """What all ideas of a run share; `busy` says how many are in which stage."""

  out: Path
  settings: Settings
  model: Model
  solver: Solver
  cache: Cache
  busy: Counter[str] = field(default_factory=Counter)


async def carry_out(line: Line, seed: Seed, tally: Tally) -> Verdict:
  """Puts the task of `seed` below `line.out`, or says why not."""
  way = _Way(line, seed, tally)
  try:
    return await way.go()
  except Unusable as error:
    return Verdict("rejected", way.stage, (str(error),), way.rounds)
  except Lost as error:
    return Verdict("lost", way.stage, (str(error),), way.rounds)
  finally:
    way.end()


class _Way:
  """The way of one idea, as far as it has come."""

  def __init__(self, line: Line, seed: Seed, tally: Tally) -> None:
    self.stage = STAGES[0]
    self.rounds = 0
    self._seed, self._tally = seed, tally
    self._line, self._settings = line, line.settings
    self._place = line.out / seed.name
    self._work = line.out / ".llm" / "work" / seed.name
    line.busy[self.stage] += 1
    self._again, self._note, self._criteria_note = 0, "", ""

  async def go(self) -> Verdict:
    proposal = await self._begun()
    while True:
      proposal, causes = await self._tried(proposal)
      if not causes:
        task = proposal.save(self._place, self._settings)
        found = task.provenance["content_hash"]
        return Verdict("admitted", self.stage, (), self.rounds, found)
      if self.rounds == ROUNDS:
        return Verdict("rejected", self.stage, tuple(causes), self.rounds)
      self.rounds += 1
      try:
        proposal = await self._mended(proposal, causes)
      except Unusable as error:
        return Verdict("rejected", self.stage, (*causes, str(error)), self.rounds)

  def end(self) -> None:
    self._line.busy[self.stage] -= 1
    shutil.rmtree(self._work, ignore_errors=True)

  # The stages

  async def _begun(self) -> Proposal:
    """Idea, task and checks."""
    seed = self._seed
    self._enter("idea")
    idea = await self._written("idea", prompts.idea(seed), replies.idea)
    self._tally.leave("idea")
    self._enter("task")
    asked = prompts.messages(
        "task",
        **prompts.person(seed),
        style=seed.persona.style,
        idea=json.dumps(idea, indent=1, ensure_ascii=False),
    )
    proposal = await self._written(
        "task", asked, lambda text: self._sound(Proposal(seed, replies.task(text)))
    )
    self._tally.leave("task")
    self._enter("checks")
    asked = prompts.messages("checks", **self._shown(proposal))
    check = await self._written("checks", asked, replies.program)
    return replace(proposal, check=check)

  async def _tried(self, proposal: Proposal) -> tuple[Proposal, list[str]]:
    """The proposal with its solution and rubric, and the causes that it is unsound."""
    task = proposal.save(self._work, self._settings)
    causes = await self._kept("null", task, self._null)
    if causes:
      self._tally.discard("checks", "null")
      return proposal, causes
    self._tally.leave("checks")
    self._enter("solve")
    attempt = await self._line.solver.attempt(
        task, self._tally, note=self._note, again=self._again
    )
    proposal = replace(proposal, attempt=attempt)
    if attempt.cause:
      self._tally.discard("solve", attempt.cause.partition(":")[0])
      return proposal, [f"solver: {attempt.cause}"]
    self._tally.leave("solve")
    if self._seed.hybrid and attempt.delivered:
      proposal = await self._with_rubric(proposal)
    self._enter("audit")
    try:
      task = proposal.save(self._work, self._settings)
    except replies.BadReply as error:  # calls of a kind that no file can hold
      return proposal, [f"solver: {error}"]
    causes = await self._kept("audit", task, self._audited)
    if causes:
      self._tally.discard("audit", kind_of(causes[0]))
    else:
      self._tally.leave("audit")
    return proposal, causes

  async def _with_rubric(self, proposal: Proposal) -> Proposal:
    """With criteria; without, where none could be had: code then judges alone."""
    self._enter("rubric")
    delivered = proposal.attempt.delivered
    asked = prompts.messages(
        "rubric",
        instruction=proposal.written.instruction,
        delivered=", ".join(sorted(delivered)),
        check=proposal.check,
        refused=self._criteria_note,
    )

    def parse(text: str) -> Proposal:
      return self._sound(replace(proposal, rubric=replies.rubric(text, delivered)))

    try:
      found = await self._written("rubric", asked, parse)
    except Unusable:
      return proposal
    self._tally.leave("rubric")
    return found

  async def _mended(self, proposal: Proposal, causes: list[str]) -> Proposal:
    """The proposal after one more round."""
    invented = [cause for cause in causes if cause.startswith(_INVENTED)]
    criteria = [cause for cause in causes if cause.startswith(_CRITERIA)]
    if invented:
      self._again += 1
      self._note = f"An earlier attempt failed: {'; '.join(invented)}"
    if criteria:
      self._criteria_note = f"\nEarlier criteria were refused: {'; '.join(criteria)}"
    if len(invented) + len(criteria) == len(causes):
      return proposal
    self._enter("repair")
    work = proposal.attempt.work if proposal.attempt else {}
    left = {p: (t or "").encode() for p, t in work.items()}
    gone = [f"{path} is gone" for path, text in work.items() if text is None]
    asked = prompts.messages(
        "repair",
        **self._shown(proposal),
        causes="\n".join(f"- {cause}" for cause in causes),
        check=proposal.check,
        work="\n".join([prompts.shown(left), *gone]) if work else "(nothing yet)",
    )

    def parse(text: str) -> tuple[Proposal, bool]:
      change = replies.repair(text)
      written = replies.repaired(proposal.written, change)
      check = change.check or proposal.check
      mended = Proposal(self._seed, written, check)
      return self._sound(mended), change.again

    mended, again = await self._written("repair", asked, parse)
    self._again += again
    self._tally.leave("repair")
    return mended

  # Judging

  async def _null(self, task: Task) -> list[str]:
    """Whether doing nothing scores 0, before anything is spent on a solution."""
    outcome = await verify(
        task, pack(gather(task.workspace)), "", answering(task, ""),
        backend=self._settings.backend, run_id="llm",
    )  # fmt: skip
    if outcome.code is None and (outcome.cause or "").startswith("verifier_lost"):
      raise Lost("sandbox", outcome.cause)
    if outcome.code is None:
      return [f"null: {outcome.cause}"]
    return [f"null scores {outcome.code:g}"] if outcome.code > 0 else []

  async def _audited(self, task: Task) -> list[str]:
    try:
      found = await audit.judge(task, self._settings.backend)
    except audit.Undecided as error:
      raise Lost("sandbox", str(error)) from error
    return found.causes

  async def _kept(
      self, what: str, task: Task, judge: Callable[[Task], Awaitable[list[str]]]
  ) -> list[str]:
    """The causes that `judge` finds, found once for the same task."""
    asked = {
        "what": what,
        "version": audit.VERSION,
        "task": task.provenance["content_hash"],
    }
    causes = self._line.cache.get(asked)
    if causes is None:
      causes = [_plain(cause) for cause in (await judge(task))[:_MOST_CAUSES]]
      self._line.cache.put(asked, causes)
    return causes

  # Asking

  async def _written(
      self, stage: str, asked: list[dict[str, Any]], parse: Callable[[str], T]
  ) -> T:
    return await self._line.model.written(stage, asked, parse, self._tally)

  def _enter(self, stage: str) -> None:
    self._line.busy[self.stage] -= 1
    self._line.busy[stage] += 1
    self.stage = stage
    self._tally.enter(stage)

  def _sound(self, proposal: Proposal) -> Proposal:
    """The proposal, once the contract takes it."""
    proposal.save(self._work, self._settings)
    return proposal

  @staticmethod
  def _shown(proposal: Proposal) -> dict[str, str]:
    written = proposal.written
    held = f"\nServices hold at the start:\n{prompts.shown(written.services)}"
    return {
        "instruction": written.instruction,
        "files": prompts.shown(written.files),
        "services": held if written.services else "",
    }


def _plain(cause: str) -> str:
  """A cause without addresses in memory, which differ from run to run."""
  return re.sub(r"0x[0-9a-f]{6,}", "0x…", cause)[:500]
