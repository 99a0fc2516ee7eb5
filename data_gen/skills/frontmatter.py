"""Front matter of a SKILL.md: the part of YAML that such files are written in.

Keys with plain or quoted scalars, block scalars (`|` and `>`), lists, nested
mappings by indentation, and JSON-like values in brackets. Every scalar is
text, but for true and false. What is beyond that is an error with its line,
never a guess.
"""

from __future__ import annotations

import json
import re
from typing import Any

# No two parts of it take the same blanks, so it takes linear time on any line.
_KEY = re.compile(
    r"""("[^"]+"\s*|'[^']+'\s*|[^\s#'"\[\]{},&*!|>%@`:-][^:#]*):(?:\s+(.*)|\s*)"""
)
_DEEPEST = 8
_Line = tuple[int, int, str]  # number, indentation, text


class FrontMatterError(ValueError):
  """What is wrong with it, for a person to read."""


def split(text: str) -> tuple[str, str]:
  """The front matter and the body of a SKILL.md."""
  lines = text.lstrip("\ufeff").splitlines()
  if not lines or lines[0].rstrip() != "---":
    raise FrontMatterError("no front matter: the first line is not ---")
  for number, line in enumerate(lines[1:], 1):
    if line.rstrip() in ("---", "..."):
      return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :]).strip()
  raise FrontMatterError("the front matter is not closed by ---")


def parse(text: str) -> dict[str, Any]:
  """The mapping that the front matter is."""
  lines: list[_Line] = []
  for number, line in enumerate(text.splitlines(), 2):
    if "\t" in line[: len(line) - len(line.lstrip())]:
      raise FrontMatterError(f"line {number} is indented by a tab")
    lines.append((number, len(line) - len(line.lstrip()), line.strip()))
  found, at = _mapping(lines, 0, 0, 0)
  if at < len(lines):
    raise FrontMatterError(f"line {lines[at][0]} is indented for no reason")
  return found


def _skip(lines: list[_Line], at: int) -> int:
  while at < len(lines) and (not lines[at][2] or lines[at][2].startswith("#")):
    at += 1
  return at


def _mapping(
    lines: list[_Line], at: int, indent: int, depth: int
) -> tuple[dict[str, Any], int]:
  if depth > _DEEPEST:
    raise FrontMatterError(f"line {lines[at][0]} is nested too deep")
  found: dict[str, Any] = {}
  while (at := _skip(lines, at)) < len(lines) and lines[at][1] == indent:
    number, _, text = lines[at]
    match = _KEY.fullmatch(text)
    if match is None:
      raise FrontMatterError(f"line {number} is no 'key: value'")
    key, value = match[1].strip().strip("\"'"), _uncommented(match[2] or "")
    if key in found:
      raise FrontMatterError(f"line {number} gives {key} a second time")
    if re.fullmatch(r"[|>][+-]?", value):
      found[key], at = _block(lines, at + 1, indent, value[0] == ">")
    elif value:
      at += 1
      while value[0] not in "'\"[{" and at < len(lines) and lines[at][1] > indent:
        value, at = f"{value} {lines[at][2]}".strip(), at + 1  # a folded scalar
      found[key] = _scalar(value, number)
    else:
      found[key], at = _nested(lines, _skip(lines, at + 1), indent, depth)
  return found, at


def _nested(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[Any, int]:
  """What stands below a key with no value beside it."""
  if at < len(lines) and lines[at][1] >= indent and lines[at][2].startswith("- "):
    return _list(lines, at, lines[at][1])
  if at < len(lines) and lines[at][1] > indent:
    return _mapping(lines, at, lines[at][1], depth + 1)
  return "", at


def _list(lines: list[_Line], at: int, indent: int) -> tuple[list[Any], int]:
  found: list[Any] = []
  while (at := _skip(lines, at)) < len(lines):
    number, inside, text = lines[at]
    if inside != indent or not text.startswith("- "):
      break
    found.append(_scalar(_uncommented(text[2:].strip()), number))
    at += 1
  return found, at


def _block(
    lines: list[_Line], at: int, indent: int, folded: bool
) -> tuple[str, int]:
  kept: list[str] = []
  while at < len(lines) and (not lines[at][2] or lines[at][1] > indent):
    kept.append(lines[at][2])
    at += 1
  return (" " if folded else "\n").join(kept).strip(), at


def _uncommented(value: str) -> str:
  if value[:1] in ("'", '"', "[", "{"):
    return value.strip()
  return re.sub(r"(^|\s)#.*", "", value).strip()


def _scalar(value: str, number: int) -> Any:
  first = value[0]
  if first in "[{":
    return _brackets(value, number)
  if first == '"':
    try:
      return str(json.loads(value))
    except ValueError:
      raise FrontMatterError(f"line {number} has a broken quoted value") from None
  if first == "'":
    if len(value) < 2 or value[-1] != "'" or "'" in value[1:-1].replace("''", ""):
      raise FrontMatterError(f"line {number} has a broken quoted value")
    return value[1:-1].replace("''", "'")
  if first in "&*!|>%@`":
    raise FrontMatterError(f"line {number} has a value that starts with {first}")
  return {"true": True, "false": False}.get(value, value)


def _brackets(value: str, number: int) -> Any:
  """JSON, or a list of bare words."""
  try:
    return json.loads(value)
  except (ValueError, RecursionError):
    pass
  words = re.fullmatch(r"\[([^\[\]{}]*)\]", value)
  if words is None:
    raise FrontMatterError(f"line {number} has brackets, neither JSON nor words")
  return [w.strip().strip("\"'") for w in words[1].split(",") if w.strip()]
