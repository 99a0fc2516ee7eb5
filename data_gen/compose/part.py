"""What a module adds to a task: a request, its files, its calls, its checks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from clawgym_jax.contracts.task import SolutionCall


@dataclass(frozen=True)
class Later:
  """A later user turn: its request, its calls and what is said at its end.

  Where it is `fresh` it opens a new conversation, so its calls hold only literals
  that are said in it or that its own calls have shown.
  """

  said: str
  calls: list[SolutionCall]
  done: str
  fresh: bool = False


@dataclass(frozen=True)
class Part:
  """One piece of work, whole in itself.

  Attributes:
    said: the request, one or more sentences that name every literal of `calls`
      which no earlier tool result shows.
    calls: the reference solution of this piece.
    workspace: input files by path; the paths of two parts never meet.
    deliverables: name -> what `checker` judges, with its `kind`.
    changed: input files that the work changes, moves or removes.
    leaves: paths that the work may leave besides those of the deliverables.
    services: files of the task's services (see `sandbox.services`).
    requires: the services that it needs.
    done: what the agent says of it at the end, a clause.
    later: the user turns after the first, of which all of the above is.
    hazard: one of the contract's; `gate` is what the checker judges it by (see
      `checks/gate.py`), and `fallen` are the calls that do the work and fall for it.
  """

  said: str
  calls: list[SolutionCall]
  workspace: dict[str, bytes]
  deliverables: dict[str, dict[str, Any]]
  done: str
  changed: frozenset[str] = frozenset()
  leaves: frozenset[str] = frozenset()
  services: dict[str, bytes] = field(default_factory=dict)
  requires: tuple[str, ...] = ()
  later: tuple[Later, ...] = ()
  hazard: str = "none"
  gate: dict[str, Any] = field(default_factory=dict)
  fallen: list[SolutionCall] = field(default_factory=list)

  @property
  def asked(self) -> tuple[str, ...]:
    """The requests of all user turns."""
    return (self.said, *(turn.said for turn in self.later))


def joined(parts: Iterable[Part]) -> Part:
  """The parts as one, in order. ValueError where two claim a path or a name, have
  later turns or a hazard."""
  whole = list(parts)
  workspace: dict[str, bytes] = {}
  deliverables: dict[str, dict[str, Any]] = {}
  services: dict[str, bytes] = {}
  for part in whole:
    for mine, all_of in (
        (part.workspace, workspace),
        (part.deliverables, deliverables),
        (part.services, services),
    ):
      twice = mine.keys() & all_of.keys()
      if twice:
        raise ValueError(f"two parts have {', '.join(sorted(twice))}")
      all_of.update(mine)
  turns = [part.later for part in whole if part.later]
  hazards = [part for part in whole if part.hazard != "none"]
  if len(turns) + len(hazards) > 1:
    raise ValueError("two parts have later turns or a hazard")
  return Part(
      said="\n".join(part.said for part in whole if part.said),
      calls=[call for part in whole for call in part.calls],
      workspace=workspace,
      deliverables=deliverables,
      done="; ".join(part.done for part in whole if part.done),
      changed=frozenset().union(*(part.changed for part in whole)),
      leaves=frozenset().union(*(part.leaves for part in whole)),
      services=services,
      requires=tuple(sorted({r for part in whole for r in part.requires})),
      later=turns[0] if turns else (),
      hazard=hazards[0].hazard if hazards else "none",
      gate=hazards[0].gate if hazards else {},
      fallen=[call for part in whole for call in part.fallen or part.calls]
      if hazards
      else [],
  )


def expected(part: Part) -> dict[str, Any]:
  """The contents of checks/expected.json."""
  found = {
      "deliverables": part.deliverables,
      "unchanged": {
          path: hashlib.sha256(data).hexdigest()
          for path, data in sorted(part.workspace.items())
          if path not in part.changed
      },
      "leaves": sorted(part.leaves),
  }
  return found | {"hazard": part.gate} if part.gate else found
