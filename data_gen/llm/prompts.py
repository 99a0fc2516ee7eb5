"""The words in which a model is asked, from prompts/*.md.

A file is what the system says, then after a line of --- what the user says, with
$names in it. `VERSION` is of all of them: tasks made by others are of another run.
"""

from __future__ import annotations

import hashlib
import string
from pathlib import Path
from typing import Any

from data_gen.llm.seeds import Seed
from data_gen.taxonomy import CATEGORY_OF, OPERATIONS, SCENARIOS
from sandbox.backends.base import Files

_FOLDER = Path(__file__).with_name("prompts")
_BREAK = "\n---\n"
_MOST_SHOWN = 60_000  # characters of all files together
_MOST_OF_ONE = 12_000

_TEXTS = {path.stem: path.read_text("utf-8") for path in sorted(_FOLDER.glob("*.md"))}
VERSION = hashlib.sha256(repr(sorted(_TEXTS.items())).encode()).hexdigest()[:12]


def messages(stage: str, **given: str) -> list[dict[str, Any]]:
  """The conversation that opens a stage; KeyError for a name that is not given."""
  parts = (string.Template(part).substitute(given) for part in _parts(stage))
  return [
      {"role": role, "content": part.strip()}
      for role, part in zip(("system", "user"), parts, strict=True)
  ]


def opening(stage: str) -> str:
  """The first line of what the system says in a stage, which no other begins with."""
  return _TEXTS[stage].partition("\n")[0]


def solver() -> str:
  """What the solver's model is told beside the harness's own words."""
  return _TEXTS["solve"].strip()


def person(seed: Seed) -> dict[str, str]:
  """Who asks, and when."""
  asker = seed.persona
  return {
      "name": asker.name,
      "occupation": asker.occupation,
      "company": asker.company,
      "city": asker.city,
      "today": seed.now[:10],
  }


def idea(seed: Seed) -> list[dict[str, Any]]:
  asker = seed.persona
  operations = (
      f"- {name}: {OPERATIONS[CATEGORY_OF[name]].members[name]}"
      for name in seed.operations
  )
  return messages(
      "idea",
      **person(seed),
      country=asker.country,
      context=asker.context,
      tools=", ".join(asker.tools),
      habits="; ".join(asker.habits),
      intent=asker.intent,
      subcategory=seed.subcategory,
      subcategory_means=SCENARIOS[seed.scenario].members[seed.subcategory],
      operations="\n".join(operations),
      inputs=str(seed.inputs),
      formats=", ".join(seed.formats),
  )


def shown(files: Files) -> str:
  """Files as text, each cut where it is long, and the rest only named where all
  together are."""
  parts, room = [], _MOST_SHOWN
  for name in sorted(files):
    text = files[name].decode(errors="replace")
    kept = text[: min(_MOST_OF_ONE, max(0, room))]
    room -= len(kept)
    left = len(text) - len(kept)
    cut = f"\n[… {left} characters]" if left else ""
    parts.append(f"===FILE {name}===\n{kept.rstrip()}{cut}")
  return "\n".join(parts) or "(none)"


def _parts(stage: str) -> list[str]:
  return _TEXTS[stage].split(_BREAK)
