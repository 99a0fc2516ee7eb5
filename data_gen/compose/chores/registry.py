"""What a chore is, and the table of all of them.

A chore is a function from a setting to a `Part`, or None where it finds
nothing to do. Its paths come from words that the setting gives only once, so
chores and records never meet. Names come from the frame, contents from the
data, and its calls hold for any contents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from data_gen.compose.part import Part
from data_gen.compose.setting import Setting
from data_gen.draft import exec_call


@dataclass(frozen=True)
class Chore:
  """A registered chore; `atomic` names the taxonomy's operation, `requires` the
  services that it needs."""

  name: str
  atomic: str
  make: Callable[[Setting], Part | None]
  requires: tuple[str, ...] = ()


CHORES: dict[str, Chore] = {}


def chore(atomic: str, *requires: str) -> Callable:
  """Registers the decorated function under its name."""

  def register(make: Callable[[Setting], Part | None]) -> Callable:
    CHORES[make.__name__] = Chore(make.__name__, atomic, make, requires)
    return make

  return register


def may_join(names: Iterable[str]) -> bool:
  """Whether one task can have all of these: no service is seeded twice."""
  chosen = list(names)
  needed = [service for name in chosen for service in CHORES[name].requires]
  return len(set(chosen)) == len(chosen) and len(set(needed)) == len(needed)


_SORTS = "north south east west old new first second spare main".split()


def kin(setting: Setting, kind: str, count: int, sign: str = "-") -> list[str]:
  """Names of one family, such as apples-north; they take one word of the pool."""
  word = setting.word(kind)
  return [f"{word}{sign}{sort}" for sort in setting.rng.sample(_SORTS, count)]


def digest(data: bytes) -> str:
  return hashlib.sha256(data).hexdigest()


def exact(files: dict[str, bytes], gone: Iterable[str] = ()) -> dict[str, Any]:
  """A deliverable: these files to the byte, and nothing where `gone` says."""
  return {
      "kind": "exact",
      "files": {path: digest(data) for path, data in sorted(files.items())},
      "gone": sorted(gone),
  }


def lines(path: str, texts: Iterable[str]) -> dict[str, Any]:
  """A deliverable: a text file of these lines."""
  return {"kind": "lines", "path": path, "lines": list(texts)}


def text(texts: Iterable[str]) -> bytes:
  """The contents of a file of these lines."""
  return "".join(f"{line}\n" for line in texts).encode()


def python(code: str):
  """A call that runs this Python."""
  return exec_call(f"python3 - <<'EOF'\n{code}\nEOF")


def note(setting: Setting) -> str:
  """A line of prose with a number of the data."""
  about = ("Stock is", "Next delivery has", "The meter says", "Left to do:", "Checked:")
  return f"{setting.pick(about)} {setting.integer(10, 900)}"


def page(setting: Setting, count: int) -> list[str]:
  return [note(setting) for _ in range(count)]
