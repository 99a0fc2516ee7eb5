"""Who asks: a person of the world with a trade, tools, ways and a way of writing.

A setting has one persona, the same whenever it is asked for and over all
records. Name, employer and city are those of the world, the locale is that of
the city, trade and intent are those of the topic's scenario. Nothing of a
persona changes what a request wants.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from data_gen.compose.setting import Setting
from data_gen.compose.topics import Topic, topic_of
from data_gen.pools import POOLS

STYLES = ("terse", "chatty", "bulleted", "formal", "forwarded mail", "voice memo")
_TOOLS, _HABITS = 2, 2  # of each, a persona's
# scenario category -> the ending of its pools of trades and intents
_FIELDS = {
    "office and daily tasks": "office",
    "communication and collaboration": "communication",
    "information retrieval": "retrieval",
    "analysis and decision support": "analysis",
    "automation and workflows": "automation",
    "software development": "software",
    "systems and infrastructure": "systems",
    "planning and knowledge organisation": "planning",
    "professional domain support": "domains",
}

# city -> country, time zone, the language spoken there
_LOCALES = {
    "Lisbon": ("Portugal", "Europe/Lisbon", "pt-PT"),
    "Oslo": ("Norway", "Europe/Oslo", "nb-NO"),
    "Geneva": ("Switzerland", "Europe/Zurich", "fr-CH"),
    "Porto": ("Portugal", "Europe/Lisbon", "pt-PT"),
    "Krakow": ("Poland", "Europe/Warsaw", "pl-PL"),
    "Dublin": ("Ireland", "Europe/Dublin", "en-IE"),
    "Malmo": ("Sweden", "Europe/Stockholm", "sv-SE"),
    "Turin": ("Italy", "Europe/Rome", "it-IT"),
    "Bergen": ("Norway", "Europe/Oslo", "nb-NO"),
    "Lyon": ("France", "Europe/Paris", "fr-FR"),
    "Ghent": ("Belgium", "Europe/Brussels", "nl-BE"),
    "Tallinn": ("Estonia", "Europe/Tallinn", "et-EE"),
    "Seville": ("Spain", "Europe/Madrid", "es-ES"),
    "Leipzig": ("Germany", "Europe/Berlin", "de-DE"),
    "Zagreb": ("Croatia", "Europe/Zagreb", "hr-HR"),
    "Utrecht": ("Netherlands", "Europe/Amsterdam", "nl-NL"),
    "Bilbao": ("Spain", "Europe/Madrid", "eu-ES"),
    "Aarhus": ("Denmark", "Europe/Copenhagen", "da-DK"),
    "Trieste": ("Italy", "Europe/Rome", "it-IT"),
    "Galway": ("Ireland", "Europe/Dublin", "en-IE"),
    "Riga": ("Latvia", "Europe/Riga", "lv-LV"),
    "Nantes": ("France", "Europe/Paris", "fr-FR"),
}


@dataclass(frozen=True)
class Persona:
  """See the module's docstring; `context` and `habits` follow on "one who …".

  Attributes:
    intent: what the request is for; follows on "I need this".
    style: one of `STYLES`, how requests are put.
    locale: the tag of the language, `time_zone` the zone's name.
  """

  name: str
  occupation: str
  company: str
  city: str
  country: str
  time_zone: str
  locale: str
  context: str
  tools: tuple[str, ...]
  habits: tuple[str, ...]
  intent: str
  style: str

  def record(self) -> dict[str, str]:
    """The `persona` of a task.json."""
    return {
        key: "; ".join(value) if isinstance(value, tuple) else value
        for key, value in asdict(self).items()
    }


def persona(setting: Setting, topic: Topic | None = None) -> Persona:
  """The persona of a setting; give the topic where it is not `topic_of`."""
  draw = setting.beside("persona")
  field = _FIELDS[(topic or topic_of(setting)).scenario]
  country, time_zone, locale = _LOCALES[setting.city]
  return Persona(
      name=setting.name,
      company=setting.company,
      city=setting.city,
      country=country,
      time_zone=time_zone,
      locale=locale,
      context=draw.word("persona_context"),
      tools=tuple(sorted(draw.words("persona_tool", _TOOLS))),
      habits=tuple(sorted(draw.words("persona_habit", _HABITS))),
      style=draw.rng.choice(STYLES),
      # last, so that another topic changes nothing else
      occupation=draw.word(f"trade_{field}"),
      intent=draw.word(f"intent_{field}"),
  )


def combinations(split: str) -> int:
  """How many personas a split has, names and employers not counted."""

  def size(kind: str) -> int:
    return len(POOLS[kind][split == "heldout"])

  return (
      sum(size(f"trade_{f}") * size(f"intent_{f}") for f in _FIELDS.values())
      * size("persona_context")
      * math.comb(size("persona_tool"), _TOOLS)
      * math.comb(size("persona_habit"), _HABITS)
      * size("city")
      * len(STYLES)
  )
