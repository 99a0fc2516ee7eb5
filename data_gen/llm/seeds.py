"""What an idea starts from: who asks, about what, by which operations.

Idea i of (seed, split) depends on nothing else. The nine scenarios take turns, and
a family is a subcategory with three atomic operations of different categories. An
eighth of the families, by their names, is of the held-out split alone; people,
places and days of the splits are apart as in every other task.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

from data_gen.compose.personas import Persona, persona
from data_gen.compose.setting import Setting
from data_gen.compose.topics import TOPICS
from data_gen.taxonomy import OPERATIONS, SCENARIOS

_OPERATIONS = 3
_RESERVED = 8  # one family in so many is held out
_HYBRID = 4  # one idea in so many has a rubric
_NOT_TEXT = frozenset(  # operations on files that no model writes as text
    ("archive reading", "database query", "document reading", "version control")
)
_FORMATS = (
    "CSV", "TSV", "JSON", "JSON Lines", "YAML", "TOML", "INI", "XML", "HTML",
    "Markdown", "plain text", "a log", "an .eml mail", "an .ics calendar",
    "a .vcf contact file", "a Python script", "a shell script",
)  # fmt: skip


@dataclass(frozen=True)
class Seed:
  """The start of one idea.

  Attributes:
    number: of the whole run; `index` is the idea's own.
    formats: of input files, to choose from; `inputs` is how many there should be.
    hybrid: whether a rubric judges beside the code.
  """

  number: int
  index: int
  split: str
  name: str
  family: str
  persona: Persona
  scenario: str
  subcategory: str
  operations: tuple[str, ...]
  now: str
  formats: tuple[str, ...]
  inputs: int
  hybrid: bool

  @property
  def macro(self) -> str:
    return SCENARIOS[self.scenario].macro


def seed_of(number: int, split: str, index: int) -> Seed:
  """The start of idea `index` of run `number`."""
  key = f"llm {number} {split} {index}"
  rng = random.Random(key)
  scenarios = sorted(SCENARIOS)
  scenario = scenarios[index % len(scenarios)]
  while True:
    subcategory = rng.choice(sorted(SCENARIOS[scenario].members))
    groups = rng.sample(sorted(OPERATIONS), _OPERATIONS)
    operations = tuple(
        sorted(
            rng.choice(sorted(OPERATIONS[group].members.keys() - _NOT_TEXT))
            for group in groups
        )
    )
    family = "llm-" + "-".join((subcategory, *operations)).replace(" ", "_")
    held = zlib.crc32(family.encode()) % _RESERVED == 0
    if held == (split == "heldout"):
      break
  setting = Setting(key, split)
  topics = (topic for topic in TOPICS.values() if topic.subcategory == subcategory)
  return Seed(
      number=number,
      index=index,
      split=split,
      name=f"{split}-{number}-{index:05d}-llm",
      family=family,
      persona=persona(setting, next(topics)),
      scenario=scenario,
      subcategory=subcategory,
      operations=operations,
      now=f"{setting.today.isoformat()}T09:00:00Z",
      formats=tuple(rng.sample(_FORMATS, 4)),
      inputs=rng.randint(4, 9),
      hybrid=index % _HYBRID == 0,
  )
