"""apply_patch: several files changed by one text, all worked out before one is.

  *** Begin Patch
  *** Add File: PATH         then lines with +
  *** Delete File: PATH
  *** Update File: PATH      then hunks, if renamed after *** Move to: PATH
  @@ a line above the hunk   optional
   a line that stays
  -a line that goes
  +a line that comes
  *** End of File            optional: the hunk ends the file
  *** End Patch

A hunk is looked for below the one before it: first as it stands, then with
blanks at the ends of lines ignored, then at both ends. Lines that stay keep
the file's own spelling. A changed file ends with a newline.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox.backends import SandboxError
from sandbox.backends.base import WORKSPACE
from sandbox.tools.call import Call
from sandbox.tools.files import encode, whole_text
from sandbox.tools.results import BadCall

_BEGIN, _END, _EOF = "*** Begin Patch", "*** End Patch", "*** End of File"
_MOVE = "*** Move to: "
_REMOVE_SECONDS = 20.0

_SAMENESS: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip)


@dataclass
class Hunk:
  """`lines` as (sign, text); `below` are lines that stand above it, in order."""

  below: list[str] = field(default_factory=list)
  lines: list[tuple[str, str]] = field(default_factory=list)
  ends_file: bool = False


@dataclass
class Change:
  """What happens to one file: kind is add, delete or update."""

  kind: str
  path: str
  added: list[str] = field(default_factory=list)
  hunks: list[Hunk] = field(default_factory=list)
  target: str | None = None


async def apply_patch(call: Call, args: dict[str, Any]) -> str:
  """Reads all that the patch touches, works it out, then writes."""
  state: dict[str, str | None] = {}
  said, moved = [], []

  async def text_of(path: str) -> str:
    if path not in state:
      try:
        state[path] = await whole_text(call.sandbox, path)
      except SandboxError as error:
        raise BadCall(f"{path}: {error}") from None
    text = state[path]
    if text is None:
      raise BadCall(f"{path} was deleted by this patch")
    return text

  for change in parse(args["input"]):
    path, target = _place(change.path), _place(change.target or change.path)
    if change.kind == "add":
      state[path] = "".join(line + "\n" for line in change.added)
      said.append(f"A {change.path}")
    elif change.kind == "delete":
      await text_of(path)
      state[path] = None
      said.append(f"D {change.path}")
    else:
      text = updated(change, await text_of(path))
      state[path] = None
      state[target] = text
      if target != path:
        moved.append(f"chmod --reference={shlex.quote(path)} -- {shlex.quote(target)}")
      to = f" -> {change.target}" if change.target else ""
      said.append(f"M {change.path}{to}")
  for path, text in state.items():
    if text is not None:
      try:
        await call.sandbox.write(path, encode(text))
      except SandboxError as error:
        raise BadCall(f"{path}: {error}") from None
  gone = [shlex.quote(path) for path, text in state.items() if text is None]
  if gone:
    command = "; ".join([*moved, f"rm -f -- {' '.join(gone)}"])
    result = await call.sandbox.exec(command, _REMOVE_SECONDS)
    if result.exit_code != 0:
      raise BadCall(f"could not delete: {result.output.strip()}")
  return "\n".join(["Applied the patch:", *said])


def _place(path: str) -> str:
  """One name of a file for all that a patch may call it."""
  whole = posixpath.normpath(posixpath.join(WORKSPACE, path))
  return whole.removeprefix(f"{WORKSPACE}/")


def parse(text: str) -> list[Change]:
  """The changes of a patch; `BadCall` names the line that is none."""
  lines = [line.removesuffix("\r") for line in text.strip().split("\n")]
  if len(lines) < 2 or lines[0].strip() != _BEGIN or lines[-1].strip() != _END:
    raise BadCall(f"a patch starts with {_BEGIN!r} and ends with {_END!r}")
  changes: list[Change] = []
  for number, line in enumerate(lines[1:-1], 2):
    header = _header(line)
    if header is not None:
      changes.append(header)
    elif not changes or not _take(changes[-1], line):
      raise BadCall(f"line {number} of the patch has no place there: {line[:80]!r}")
  if not changes:
    raise BadCall("the patch changes nothing")
  for change in changes:
    for hunk in change.hunks:
      while hunk.lines and hunk.lines[-1] == (" ", ""):
        hunk.lines.pop()  # what stands between two changes, as a rule
    change.hunks = [hunk for hunk in change.hunks if hunk.lines]
    if change.kind == "update" and not change.hunks and change.target is None:
      raise BadCall(f"the patch says no change of {change.path}")
  return changes


def updated(change: Change, text: str) -> str:
  """`text` after the hunks of an update."""
  lines = text.split("\n")
  if lines[-1] == "":
    lines.pop()
  ending = "\r" if lines and all(line.endswith("\r") for line in lines) else ""
  position = 0
  for hunk in change.hunks:
    for line in hunk.below:
      position = _find(lines, [line], position, False, change.path) + 1
    old = [content for sign, content in hunk.lines if sign != "+"]
    if old:
      start = _find(lines, old, position, hunk.ends_file, change.path)
    else:
      start = position if hunk.below else len(lines)
    kept = iter(lines[start : start + len(old)])
    new = []
    for sign, content in hunk.lines:
      if sign == "+":
        new.append(content + ending)
      elif sign == " ":
        new.append(next(kept))
      else:
        next(kept)
    lines[start : start + len(old)] = new
    position = start + len(new)
  return "".join(line + "\n" for line in lines)


def _header(line: str) -> Change | None:
  for kind in ("add", "delete", "update"):
    mark = f"*** {kind.title()} File: "
    if line.startswith(mark) and line[len(mark) :].strip():
      return Change(kind, line[len(mark) :].strip())
  return None


def _take(change: Change, line: str) -> bool:
  """Adds a line of the patch to `change`; whether it has a place there."""
  if change.kind == "add":
    change.added.append(line[1:])
    return line.startswith("+")
  if change.kind == "delete":
    return not line.strip()
  if line.startswith(_MOVE) and not change.hunks:
    change.target = line[len(_MOVE) :].strip()
    return bool(change.target)
  if line.startswith("@@"):
    if not change.hunks or change.hunks[-1].lines:
      change.hunks.append(Hunk())
    if line[2:].strip():
      change.hunks[-1].below.append(line[2:].removeprefix(" "))
    return True
  if not change.hunks:
    change.hunks.append(Hunk())
  hunk = change.hunks[-1]
  if line.strip() == _EOF:
    hunk.ends_file = True
    return bool(hunk.lines)
  sign, content = (line[0], line[1:]) if line else (" ", "")
  hunk.lines.append((sign, content))
  return sign in " +-" and not hunk.ends_file


def _find(
    lines: list[str], wanted: list[str], start: int, at_end: bool, path: str
) -> int:
  """Where `wanted` stands in `lines`, from `start` on."""
  last = len(lines) - len(wanted)
  places = range(max(start, last if at_end else start), last + 1)
  for same in _SAMENESS:
    goal = [same(line) for line in wanted]
    for place in places:
      if [same(line) for line in lines[place : place + len(wanted)]] == goal:
        return place
  shown = "\n".join(wanted)[:300]
  where = (
      "at the end of" if at_end else "in" if start == 0 else f"below line {start} of"
  )
  raise BadCall(f"not {where} {path}:\n{shown}")
