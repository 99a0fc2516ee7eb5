"""A family of tasks: which modules in which order, from what to what."""

from __future__ import annotations

from dataclasses import dataclass

from data_gen.compose.operations import needs_second


@dataclass(frozen=True)
class Graph:
  """A family of tasks, by the names of its modules.

  `second` is the kind of the second file, "" where no operation needs one.
  """

  source: str
  operations: tuple[str, ...]
  sink: str
  chores: tuple[str, ...] = ()
  second: str = ""

  def __post_init__(self) -> None:
    if bool(self.second) != needs_second(self.operations):
      raise ValueError(f"{self.name}: a second file goes with an operation for it")

  @property
  def name(self) -> str:
    sources = (self.source, self.second) if self.second else (self.source,)
    return "-".join((*sources, *self.operations, self.sink, *self.chores))
