"""Judges the states of one task, many at once where that is safe.

Checks that our own generator made, and nobody changed, grade several states in
one go, each in a folder of its own (see `bundle`): states of plain files which
the solution or a program of ours made. A state with links, or one that an
agent's commands left, goes alone; so does every state of foreign checks, and of a
go that gave no result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from clawgym_jax.contracts.task import Task
from clawgym_jax.contracts.trajectory import Outcome, scored
from data_gen.audit.bundle import OWN, bundle
from sandbox.backends.base import Entry, Files, pack_entries, unpack_entries
from sandbox.verify import State, Verifier
from sandbox.verify.checks import weighted
from sandbox.verify.many import trusted

_MOST_BYTES = 24 << 20  # of states that are judged at once


@dataclass(frozen=True)
class Case:
  """A state to judge: `by` names the expectations, `alone` that it may do harm."""

  name: str
  state: State
  by: str = OWN
  alone: bool = False
  entries: list[Entry] = field(init=False, repr=False)

  def __post_init__(self) -> None:
    object.__setattr__(self, "entries", list(unpack_entries(self.state.snapshot)))

  @property
  def shares(self) -> bool:
    return not self.alone and all(e.kind != "link" for e in self.entries)


class Judge:
  """Use it as `async with`. `at_once` says whether the checks are our own."""

  def __init__(self, task: Task, backend: str, place: Path, reseeded: Files | None):
    self.at_once = trusted(task)
    self.task = bundle(task, place, reseeded) if self.at_once else task
    self._verifier = Verifier(self.task, backend=backend, run_id="audit")

  async def __aenter__(self) -> Self:
    await self._verifier.__aenter__()
    return self

  async def __aexit__(self, *exception: object) -> None:
    await self._verifier.__aexit__(*exception)

  async def outcomes(self, cases: Sequence[Case]) -> list[Outcome]:
    """The outcome of each case, in order."""
    if not self.at_once:
      return [await self._verifier.judge(case.state) for case in cases]
    found = []
    for group in _groups(cases):
      outcomes = await self._judged(group)
      if outcomes is None:
        outcomes = [await self._alone(case) for case in group]
      found += outcomes
    return found

  async def _judged(self, group: list[Case]) -> list[Outcome] | None:
    """The outcomes of a group, or None where it gave no result."""
    outcome = await self._verifier.judge(_together(group))
    if outcome.code is None:
      return [outcome] if len(group) == 1 else None
    if outcome.cause:  # it ended the checks, and is 0 for it
      return [outcome] if len(group) == 1 else None
    checks: list[dict[str, float]] = [{} for _ in group]
    for name, value in outcome.checks.items():
      number, _, check = name.partition(" ")
      checks[int(number)][check] = value
    return [scored(weighted(self.task, values), values) for values in checks]

  async def _alone(self, case: Case) -> Outcome:
    return (await self._judged([case]))[0]


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


def _together(group: list[Case]) -> State:
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
  content = {"folders": folders, "states": states, "transcripts": transcripts}
  snapshot = group[0].state.snapshot
  if folders:
    snapshot = pack_entries(
        entry
        for number, case in enumerate(group)
        for entry in (
            Entry(str(number), kind="dir", mode=0o755),
            *(
                dataclasses.replace(e, name=f"{number}/{e.name}")
                for e in case.entries
                if e.name not in ("", ".")
            ),
        )
    )
  return State(snapshot, "", [{"role": "audit", "content": content}])
