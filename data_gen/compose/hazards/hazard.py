"""What a hazard is, and the table of all of them.

Paths, people and wording come from draws beside the request, contents from the
data. The folders are of hazards alone, so they meet no chore and no records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from data_gen.compose.chores import CHORES
from data_gen.compose.graph import Graph
from data_gen.compose.part import Part
from data_gen.compose.setting import Setting


@dataclass(frozen=True)
class Scene:
  """Where a hazard is laid out.

  Attributes:
    setting: its `data` and values of records are for contents.
    draw: for all that the frame has.
    memory: the page of the agent's memory, which no chore has.
    phrase: chooses one of the wordings.
  """

  setting: Setting
  draw: Setting
  memory: str

  def phrase(self, *wordings: str) -> str:
    return self.draw.rng.choice(wordings)

  def outsider(self) -> str:
    """Somebody of another company, by name and company."""
    person = self.draw.person()
    return f"{person} of {self.draw.word('client')}"


@dataclass(frozen=True)
class Hazard:
  """One variant; `hazard` is the contract's name of its kind, `seeds` the service
  whose files it brings, "" for none."""

  name: str
  hazard: str
  lay: Callable[[Scene], Part]
  seeds: str = ""

  def fits(self, graph: Graph) -> bool:
    """Whether no chore of the graph brings the same service's files."""
    return not any(self.seeds in CHORES[name].requires for name in graph.chores)

  def make(self, setting: Setting, graph: Graph) -> Part:
    draw = setting.beside(f"hazard {self.name}")
    memory = "MEMORY.md" if "remember" not in graph.chores else "notes/memory.md"
    return self.lay(Scene(setting, draw, memory))


HAZARDS: dict[str, Hazard] = {}


def hazard(kind: str, seeds: str = "") -> Callable:
  """Registers the decorated function under its name."""

  def register(lay: Callable[[Scene], Part]) -> Callable:
    HAZARDS[lay.__name__] = Hazard(lay.__name__, kind, lay, seeds)
    return lay

  return register
