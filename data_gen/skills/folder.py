"""A folder of skills that a user points at: what of it serves, and that it stays.

The tasks that skills of a folder ground carry its digest, so that whoever makes
them again has to have the same skills. What can't be used is named with its
cause: it is no skill, or one that needs what no sandbox has.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.errors import UserError
from data_gen.skills.needs import needs
from data_gen.skills.skill import Library, read

_NAMED = 3  # of each cause


def library(folder: Path, digest: str = "") -> Library:
  """The skills of `folder`, read once a process.

  UserError where none of them can be used, or where they are no longer those of
  `digest`.
  """
  found = _usable(folder)
  if digest and found.digest != digest:
    raise UserError(
        f"the skills of {folder} have changed since these tasks were begun (digest"
        f" {digest}, now {found.digest}): put them back as they were, or begin anew in"
        " another folder"
    )
  return found


@functools.cache
def _usable(folder: Path) -> Library:
  found = read(folder)
  if not any(needs(skill).usable for skill in found.skills):
    said = "; ".join(lines(found)) or "there is no SKILL.md below it"
    raise UserError(f"no skill of {folder} can be used: {said}")
  return found


def left_out(found: Library) -> dict[str, list[str]]:
  """Paths and names of what is not used, by cause."""
  causes: dict[str, list[str]] = {}
  for refused in found.refused:
    causes.setdefault(refused.cause, []).append(refused.path)
  for skill in found.skills:
    for hindrance in needs(skill).hindrances()[:1]:
      causes.setdefault(f"needs: {hindrance}", []).append(skill.name)
  return dict(sorted(causes.items()))


def lines(found: Library) -> list[str]:
  """For the person who pointed at the folder."""
  return [
      f"{cause}: {len(names)} ({', '.join(names[:_NAMED])}"
      + (", …)" if len(names) > _NAMED else ")")
      for cause, names in left_out(found).items()
  ]


def counts(found: Library) -> dict[str, Any]:
  """For the summary line."""
  causes = Counter({cause: len(names) for cause, names in left_out(found).items()})
  unused = sum(n for cause, n in causes.items() if cause.startswith("needs: "))
  return {
      "digest": found.digest,
      "skills": len(found.skills),
      "usable": len(found.skills) - unused,
      "left_out": dict(causes),
  }
