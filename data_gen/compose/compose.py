"""From a graph to a task: calls, request, files and what the checks expect.

`Graph` is the family: which operations in which order, from which kinds of
files to which kinds of deliverables. What it is about (the topic, the people)
is drawn a task at a time.
"""

from __future__ import annotations

from data_gen.compose.chores import CHORES
from data_gen.compose.graph import Graph
from data_gen.compose.hazards import Hazard
from data_gen.compose.part import Part, joined
from data_gen.compose.records import House, drawn, look_around, part_of
from data_gen.compose.setting import Setting
from data_gen.compose.surroundings import surroundings
from data_gen.compose.topics import topic_of
from data_gen.compose.turns import Asked, Pattern


def build(
    graph: Graph,
    setting: Setting,
    house: House | None = None,
    *,
    pattern: Pattern | None = None,
    hazard: Hazard | None = None,
) -> Part | None:
  """The work of a task, or None where this setting draws nothing sound for it.

  A `pattern` asks for it in several user turns; it knows no `house`. A `hazard`
  lays something into the workspace that an agent may fall for.
  """
  topic = topic_of(setting)
  if pattern:
    records = pattern.make(Asked(graph, setting, topic))
  else:
    found = drawn(graph, setting, topic, house)
    records = part_of(found) if found else None
  if records is None:
    return None
  parts = [CHORES[name].make(setting) for name in graph.chores]
  # What is to be noted word for word stands last in a turn.
  parts = [*parts, records] if pattern else [records, *parts]
  if hazard:
    place = setting.beside("place").rng.randint(0, len(parts))
    parts.insert(place, hazard.make(setting, graph))
  if None in parts:
    return None
  work = joined([Part("", [look_around()], {}, {}, ""), *parts])
  return joined([work, surroundings(setting, topic, work)])
