"""Skills: folders with a SKILL.md, read strictly and never fatally.

A skill is what AgentSkills says: front matter with a `name` (lower-case
letters, digits and hyphens, at most 64, the name of its folder) and a
`description`, then instructions. Whatever else lies under the name SKILL.md,
and every folder without one, is named with its cause. Nothing of a skill is
run, no link is followed, and only the SKILL.md of a skill is used.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.errors import UserError
from data_gen.skills import frontmatter
from data_gen.skills.frontmatter import FrontMatterError

OWN = Path(__file__).parent / "library"
MOST_BYTES = 32 << 10
_DEEPEST = 6  # folders below the one that was named
_LONGEST = {"name": 64, "description": 1024, "compatibility": 500}


@dataclass(frozen=True)
class Skill:
  """One skill; `text` is its SKILL.md as it was found, `body` what follows the
  front matter, `meta` the front matter."""

  name: str
  description: str
  text: str
  body: str = field(repr=False)
  meta: dict[str, Any] = field(hash=False, repr=False)


@dataclass(frozen=True)
class Refused:
  """A path that holds no skill, and why; `cause` is a short name to count by."""

  path: str
  cause: str
  said: str


@dataclass(frozen=True, eq=False)
class Library:
  """What a folder holds, skills by name."""

  skills: tuple[Skill, ...]
  refused: tuple[Refused, ...] = ()

  @functools.cached_property
  def digest(self) -> str:
    """The same for the same skills, whatever else lies beside them."""
    whole = hashlib.sha256()
    for skill in self.skills:
      whole.update(hashlib.sha256(skill.text.encode()).digest())
    return whole.hexdigest()[:16]

  def counts(self) -> dict[str, int]:
    """How many were refused, by cause."""
    return dict(sorted(Counter(r.cause for r in self.refused).items()))


class _NoSkillError(Exception):
  def __init__(self, cause: str, said: str):
    super().__init__(said)
    self.cause = cause


def read(folder: Path) -> Library:
  """The skills below `folder`, and what is none. UserError without a folder."""
  folder = Path(folder)
  if not folder.is_dir():
    raise UserError(f"{folder} is no folder: name one that holds skills")
  skills: dict[str, Skill] = {}
  refused: list[Refused] = []
  for path in _candidates(folder, refused):
    try:
      skill = _skill(path)
      if skill.name in skills:
        raise _NoSkillError("name taken", f"another skill is called {skill.name}")
    except _NoSkillError as error:
      refused.append(Refused(str(path), error.cause, str(error)))
    else:
      skills[skill.name] = skill
  return Library(tuple(skills[name] for name in sorted(skills)), tuple(refused))


@functools.cache
def own() -> Library:
  """The skills of this package."""
  return read(OWN)


def _candidates(folder: Path, refused: list[Refused]) -> Iterable[Path]:
  """Every SKILL.md in order; folders that have none, at any depth, are refused."""

  def failed(error: OSError) -> None:
    refused.append(Refused(str(error.filename), "unreadable", str(error)))

  empty: list[str] = []
  found: list[Path] = []
  for place, folders, files in os.walk(folder, onerror=failed):
    here = Path(place)
    names = [n for n in (*folders, *files) if n.lower() == "skill.md"]
    folders[:] = sorted(n for n in folders if n[0] != "." and n not in names)
    depth = len(here.relative_to(folder).parts)
    if names:
      found.extend(here / name for name in sorted(names))
      folders[:] = []  # a skill's own folders hold no skills
    elif depth and not folders:
      empty.append(place)
    if depth >= _DEEPEST and folders:
      refused.append(Refused(place, "too deep", "its folders were not looked into"))
      folders[:] = []
  refused.extend(
      Refused(place, "no SKILL.md", "there is no SKILL.md in it")
      for place in sorted(empty)
  )
  return sorted(found)


def _skill(path: Path) -> Skill:
  text = _text(path)
  try:
    head, body = frontmatter.split(text)
    meta = frontmatter.parse(head)
  except FrontMatterError as error:
    raise _NoSkillError("front matter", str(error)) from None
  for key in ("name", "description"):
    if key not in meta:
      raise _NoSkillError(f"no {key}", f"its front matter has no {key}")
  for key, most in _LONGEST.items():
    value = meta.get(key, "-")
    if not isinstance(value, str) or not value.strip() or len(value) > most:
      raise _NoSkillError(f"bad {key}", f"its {key} is no text of 1 to {most} letters")
  name = meta["name"]
  if not re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name):
    raise _NoSkillError(
        "bad name", f"{name!r} is not lower-case letters, digits and single hyphens"
    )
  if name != path.resolve().parent.name:
    raise _NoSkillError("other folder", f"the folder of {name} has another name")
  if not body:
    raise _NoSkillError("no instructions", "nothing follows its front matter")
  return Skill(name, meta["description"].strip(), text, body, meta)


def _text(path: Path) -> str:
  if path.name != "SKILL.md":
    raise _NoSkillError("bad file name", f"it is called {path.name}, not SKILL.md")
  if path.is_symlink() or not path.is_file():
    raise _NoSkillError("no plain file", "it is a link, a folder or a pipe")
  try:
    with path.open("rb") as file:
      data = file.read(MOST_BYTES + 1)
  except OSError as error:
    raise _NoSkillError("unreadable", f"it can't be read: {error.strerror}") from None
  if len(data) > MOST_BYTES:
    raise _NoSkillError("too large", f"it has more than {MOST_BYTES} bytes")
  if not data.strip():
    raise _NoSkillError("empty", "it is empty")
  try:
    text = data.decode("utf-8")
  except UnicodeDecodeError:
    raise _NoSkillError("no text", "it is not UTF-8") from None
  if "\0" in text:
    raise _NoSkillError("no text", "it holds zero bytes")
  return text
