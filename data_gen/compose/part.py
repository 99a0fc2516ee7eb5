"""What a module adds to a task: a request, its files, its calls, its checks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from clawgym_jax.contracts.task import SolutionCall


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


def joined(parts: Iterable[Part]) -> Part:
  """The parts as one, in order. ValueError where two claim a path or a name."""
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
  )


def expected(part: Part) -> dict[str, Any]:
  """The contents of checks/expected.json."""
  return {
      "deliverables": part.deliverables,
      "unchanged": {
          path: hashlib.sha256(data).hexdigest()
          for path, data in sorted(part.workspace.items())
          if path not in part.changed
      },
      "leaves": sorted(part.leaves),
  }
