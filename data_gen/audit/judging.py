"""Judges the states of one task, many at once where that is safe.

Checks that our own generator made, and nobody changed, grade several states in
one go, each in a folder of its own (see `court`): states of plain files. The audit's
agents are all of ours; a state with links goes alone, so does every state of
foreign checks, and of a go that gave no result.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clawgym_jax.contracts.task import Task
from clawgym_jax.contracts.trajectory import Outcome, scored
from data_gen.audit.court import EXPECTED, OWN, RESEEDED, SOURCE, Court
from sandbox.backends.base import Files, in_folders, kinds, unpack
from sandbox.verify import State, Verifier
from sandbox.verify.checks import weighted

_MOST_BYTES = 24 << 20  # of states that are judged at once


@dataclass(frozen=True)
class Case:
  """A state to judge; `by` names the expectations."""

  name: str
  state: State
  by: str = OWN

  @functools.cached_property
  def files(self) -> Files:
    return unpack(self.state.snapshot)

  @functools.cached_property
  def shares(self) -> bool:
    return "link" not in kinds(self.state.snapshot)


class Judge:
  """Judges by the checks of `task`: `checks`, where they share the verifiers of
  `court` (see `court.shared`), which is `at_once`; `reseeded` are those over other
  records.
  """

  def __init__(
      self, task: Task, court: Court, checks: Files | None, reseeded: Files | None
  ):
    self._task, self._court, self._checks = task, court, checks
    self.at_once = self._checks is not None
    given = {OWN: self._checks or {}, RESEEDED: reseeded or {}}
    self._expected = {
        name: checks[EXPECTED].decode() for name, checks in given.items() if checks
    }

  async def outcomes(self, cases: Sequence[Case]) -> list[Outcome]:
    """The outcome of each case, in order."""
    if not self.at_once:
      async with Verifier(
          self._task, backend=self._court.backend, run_id="audit"
      ) as verifier:
        return [await verifier.judge(case.state) for case in cases]
    found = []
    for group in _groups(cases):
      outcomes = await self._judged(group)
      if outcomes is None:
        outcomes = [await self._alone(case) for case in group]
      found += outcomes
    return found

  async def _judged(self, group: list[Case]) -> list[Outcome] | None:
    """The outcomes of a group, or None where it gave no result."""
    verifier = await self._court.verifier(self._checks[SOURCE])
    outcome = await verifier.judge(self._together(group))
    if outcome.code is None:
      return [outcome] if len(group) == 1 else None
    if outcome.cause:  # it ended the checks, and is 0 for it
      return [outcome] if len(group) == 1 else None
    checks: list[dict[str, float]] = [{} for _ in group]
    for name, value in outcome.checks.items():
      number, _, check = name.partition(" ")
      checks[int(number)][check] = value
    return [scored(weighted(self._task, values), values) for values in checks]

  async def _alone(self, case: Case) -> Outcome:
    return (await self._judged([case]))[0]

  def _together(self, group: list[Case]) -> State:
    """One state of all in the group: each in a numbered folder, or as it is alone."""
    transcripts: list[list] = []
    states = []
    for case in group:
      said = list(case.state.transcript)
      if said not in transcripts:
        transcripts.append(said)
      states.append({
          "by": case.by,
          "final_message": case.state.final_message,
          "services": list(case.state.reports),
          "transcript": transcripts.index(said),
      })  # fmt: skip
    folders = len(group) > 1
    content = {
        "now": self._task.now, "expected": self._expected, "folders": folders,
        "states": states, "transcripts": transcripts,
    }  # fmt: skip
    snapshot = group[0].state.snapshot
    if folders:
      snapshot = in_folders(
          (str(number), case.state.snapshot) for number, case in enumerate(group)
      )
    return State(snapshot, "", [{"role": "audit", "content": content}])


def _groups(cases: Sequence[Case]) -> Iterator[list[Case]]:
  """The cases in order, as many together as may be."""
  group: list[Case] = []
  size = 0
  for case in cases:
    bytes_ = len(case.state.snapshot)
    if group and (not case.shares or size + bytes_ > _MOST_BYTES):
      yield group
      group, size = [], 0
    group.append(case)
    size += bytes_
    if not case.shares:
      yield group
      group, size = [], 0
  if group:
    yield group


