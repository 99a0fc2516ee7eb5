"""What a conversion does not carry, counted by cause: never silent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_NAMED = 3


class LeftOut(Exception):
  """A task that the other format can't hold, or that can't be read; the cause."""


@dataclass
class Losses:
  """What was lost on the way.

  Attributes:
    left_out: names of whole tasks, by cause.
    parts: how many tasks lost what part of themselves.
  """

  left_out: dict[str, list[str]] = field(default_factory=dict)
  parts: Counter[str] = field(default_factory=Counter)

  def leave_out(self, name: str, cause: str) -> None:
    self.left_out.setdefault(cause, []).append(name)

  def lines(self) -> list[str]:
    """For the person who asked."""
    said = []
    for cause, names in sorted(self.left_out.items()):
      shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
      said.append(f"left out: {cause}: {len(names)} ({shown})")
    return said + [f"lost: {what}: {n}" for what, n in sorted(self.parts.items())]

  def counts(self) -> dict[str, Any]:
    """For the summary line."""
    return {
        "left_out": {cause: len(names) for cause, names in self.left_out.items()},
        "lost": dict(self.parts),
    }
