"""One tool call under way: where, within what time, beside which other tools.

`arguments` checks what a model wrote against the tool's schema: what is
required must be there and of its type, what is optional must be of its type
or null. A property that the schema doesn't know is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clawgym_jax.contracts import json_text
from sandbox.backends import Sandbox
from sandbox.tools.results import BadCall

_PATH_ALIASES = ("file_path", "filePath", "file")


@dataclass(frozen=True)
class Call:
  """The sandbox, the seconds a command may take, the names of tools offered."""

  sandbox: Sandbox
  seconds: float
  offered: frozenset[str]


def arguments(
    name: str,
    given: dict[str, Any] | str,
    schema: dict[str, Any],
    judged: tuple[str, ...] = (),
) -> dict[str, Any]:
  """The arguments of a call, checked; the tool itself judges those in `judged`."""
  if isinstance(given, str):
    try:
      given = json_text.parse(given or "{}")
    except ValueError as error:
      raise BadCall(f"the arguments of {name} are not JSON: {error}") from None
  if not isinstance(given, dict):
    raise BadCall(f"the arguments of {name} must be an object")
  properties, required = schema["properties"], schema["required"]
  args = dict(given)
  for alias in _PATH_ALIASES:
    if "path" in properties and alias in args and "path" not in args:
      args["path"] = args.pop(alias)
  missing = [
      f"{key} ({properties[key]['type']})"
      for key in required
      if key not in judged and not _KINDS[properties[key]["type"]](args.get(key))
  ]
  if missing:
    raise BadCall(f"{name} needs {', '.join(missing)}")
  for key, kind in properties.items():
    if key in args and key not in judged and args[key] is not None:
      _check(key, args[key], kind)
  return args


def integer(args: dict[str, Any], key: str, default: int) -> int:
  """`args[key]`, which `arguments` has checked, cut to a whole number."""
  value = args.get(key)
  return default if value is None else int(value)


def seconds_of(milliseconds: float) -> float:
  """Seconds of a checked number of milliseconds, however large."""
  return min(milliseconds, 10**12) / 1e3


def _check(where: str, value: Any, kind: dict[str, Any]) -> None:
  """Raises `BadCall` naming `where` unless `value` is what `kind` says."""
  name = kind["type"]
  if not _KINDS[name](value):
    raise BadCall(f"{where} must be {'an' if name[0] in 'aio' else 'a'} {name}")
  if "enum" in kind and value not in kind["enum"]:
    raise BadCall(f"{where} must be one of {', '.join(kind['enum'])}")
  low, high = kind.get("minimum", -math.inf), kind.get("maximum", math.inf)
  if name in ("integer", "number") and not low <= value <= high:
    bounds = f"at least {low}" if high == math.inf else f"from {low} to {high}"
    raise BadCall(f"{where} must be {bounds}")
  if name == "array":
    for index, item in enumerate(value):
      _check(f"{where}[{index}]", item, kind["items"])
  if name == "object":
    values = kind.get("additionalProperties")
    known = kind.get("properties", {})
    for key in kind.get("required", ()):
      if key not in value:
        raise BadCall(f"{where} needs {key} ({known[key]['type']})")
    for key, item in value.items():
      inner = known.get(key, values)
      if isinstance(inner, dict):
        _check(f"{where}.{key}", item, inner)


def _number(value: Any) -> bool:
  if isinstance(value, float):
    return math.isfinite(value)
  return isinstance(value, int) and not isinstance(value, bool)


_KINDS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": _number,  # 2.0 is what some models write for 2
    "number": _number,
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
