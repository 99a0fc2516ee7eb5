"""What a skill is about: the modules of composed tasks that it speaks of.

Our own skills say it in their front matter (`metadata`: `kinds`, `atomic`,
`sinks` and `rules`, names with blanks or semicolons between); for others it is
told from their words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from data_gen.compose.chores import CHORES
from data_gen.compose.graph import Graph
from data_gen.compose.kinds import KINDS
from data_gen.compose.operations import OPERATIONS
from data_gen.compose.sinks import SINKS
from data_gen.skills.needs import needs
from data_gen.skills.rules import RULES
from data_gen.skills.skill import Skill
from data_gen.taxonomy import CATEGORY_OF

# Atomic operation -> words of a foreign skill's description that speak of it.
_WORDS = {
    "aggregation": r"aggregat|sums?\b|totals?\b|group(?:ing)? by|statistic",
    "archiving": r"archiv|compress|\bzip",
    "calendar keeping": r"calendar|appointment",
    "configuration": r"config|settings?\b",
    "contact keeping": r"contacts?\b|address book",
    "database query": r"quer(?:y|ies)|database|\bSQL",
    "date handling": r"dates?\b|deadline|schedul",
    "deduplication": r"duplicat|dedup",
    "file organisation": r"organi[sz]e|sort(?:ing)? files|tidy",
    "file renaming": r"renam",
    "filtering": r"filter|select rows",
    "format conversion": r"convert|conversion|transform",
    "joining": r"\bjoin|merg|combin",
    "log reading": r"\blogs?\b",
    "mail reading": r"e-?mail|inbox",
    "messaging": r"message|notif",
    "normalisation": r"clean|normali[sz]|standardi[sz]",
    "report writing": r"report|summar|brief",
    "reconciliation": r"reconcil|compare|\bdiff",
    "script writing": r"script|automat",
    "testing": r"\btests?\b",
    "validation": r"validat|check|audit",
    "version control": r"\bgit\b|commit|changelog",
}
# Forms of files that are several kinds.
_KINDS = {"mail": {"eml", "mbox"}, "archive": {"zip", "tar"}}


@dataclass(frozen=True)
class About:
  """The kinds, atomic operations and sinks of a skill, and the rules that a task
  may add to it."""

  kinds: frozenset[str]
  atomic: frozenset[str]
  sinks: frozenset[str]
  rules: tuple[str, ...]

  def touched(self, graph: Graph) -> frozenset[str]:
    """The modules of `graph` that it speaks of, by name."""
    kinds = {k for k in (graph.source, graph.second) if k.split("_")[0] in self.kinds}
    work = {n for n in graph.operations if OPERATIONS[n].atomic in self.atomic}
    work |= {n for n in graph.chores if CHORES[n].atomic in self.atomic}
    sink = graph.sink
    if sink in self.sinks or SINKS[sink].atomic in self.atomic:
      work.add(f"to {sink}")
    return frozenset(work | (kinds - {""}))


def about(skill: Skill) -> About:
  """What `skill` is about."""
  told: Any = skill.meta.get("metadata")
  if isinstance(told, dict) and "rules" in told:
    listed = lambda key, sign=None: str(told.get(key, "")).split(sign)
    return About(
        kinds=frozenset(listed("kinds")) & KINDS.keys(),
        atomic=frozenset(w.strip() for w in listed("atomic", ";")) & set(CATEGORY_OF),
        sinks=frozenset(listed("sinks")) & SINKS.keys(),
        rules=tuple(r for r in listed("rules") if r in RULES),
    )
  text = f"{skill.name.replace('-', ' ')} {skill.description}"
  found = needs(skill)
  return About(
      kinds=frozenset().union(*(_KINDS.get(i, {i}) for i in found.inputs))
      & KINDS.keys(),
      atomic=frozenset(a for a, w in _WORDS.items() if re.search(w, text, re.I)),
      sinks=frozenset(found.outputs) & SINKS.keys(),
      rules=tuple(RULES),
  )
