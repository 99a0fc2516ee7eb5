"""Qwen3-Coder: a function tag that holds parameter tags, between `<tool_call>` tags.

`<function=NAME>`, then `<parameter=KEY>value</parameter>` for each argument, then
`</function>`. A value is text without escapes: it ends at the first
`</parameter>`, and one newline on either side belongs to the tags. A value that
holds another tag of the format is unclear, since a forgotten end looks the same.
The tool's schema says which values are not strings; without one, all are. Source:
the chat template of Qwen3-Coder.
"""

from __future__ import annotations

import re
from typing import Any

from clawgym_jax.chat.calls.call import (
    Call,
    Format,
    Tools,
    Unclear,
    make,
    near,
    read_json,
    scan,
    skip_blank,
)

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION_END, _VALUE_END = "</function>", "</parameter>"

_FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>\s*")
_PARAMETER = re.compile(r"<parameter=([^<>\n]+)>")
_TAG = re.compile(r"<tool_call>|</tool_call>|<function=|</function>|<parameter=")
_WORDS = {"true": True, "false": False, "null": None, "none": None}


def _read(text: str, tools: Tools) -> tuple[str, list[Call]]:
  schemas = {
      tool["function"]["name"]: _object(tool["function"].get("parameters"))
      for tool in tools or []
  }

  def read_call(text: str, at: int) -> tuple[list[Call], int]:
    function = _FUNCTION.match(text, at)
    if not function:
      raise Unclear(f"<function=NAME> must follow {OPEN}, not {near(text, at)}")
    name, at = function.group(1).strip(), function.end()
    schema = schemas.get(name, {})
    properties = _object(schema.get("properties"))
    arguments: dict[str, Any] = {}
    while parameter := _PARAMETER.match(text, at):
      key = parameter.group(1).strip()
      end = text.find(_VALUE_END, parameter.end())
      if end < 0:
        raise Unclear(f"the parameter {key} is not closed with {_VALUE_END}")
      value = text[parameter.end() : end]
      if tag := _TAG.search(value):
        raise Unclear(
            f"{tag.group()} stands in the parameter {key}: close each parameter"
            f" with {_VALUE_END}, and keep these tags out of values"
        )
      if key in arguments:
        raise Unclear(f"the parameter {key} is given twice")
      value = value.removeprefix("\n").removesuffix("\n")
      arguments[key] = _typed(key, value, _types(properties.get(key), schema))
      at = skip_blank(text, end + len(_VALUE_END))
    for tag in (_FUNCTION_END, CLOSE):
      at = skip_blank(text, at)
      if not text.startswith(tag, at):
        raise Unclear(f"the call of {name} needs {tag}, not {near(text, at)}")
      at += len(tag)
    return [make(name, arguments)], at

  return scan(text, read_call, OPEN, CLOSE)


def _object(value: Any) -> dict[str, Any]:
  """A part of a schema, which a harness may have written badly."""
  return value if isinstance(value, dict) else {}


def _types(schema: Any, root: dict[str, Any], depth: int = 8) -> set[str]:
  """The JSON types that a schema allows; empty where it doesn't say."""
  if not isinstance(schema, dict) or not depth:
    return set()
  reference = schema.get("$ref")
  if isinstance(reference, str) and reference.startswith("#/"):
    target: Any = root
    for step in reference[2:].split("/"):
      target = _object(target).get(step)
    return _types(target, root, depth - 1)
  said = schema.get("type")
  if isinstance(said, (str, list)):
    return {said} if isinstance(said, str) else {t for t in said if isinstance(t, str)}
  choices = schema.get("anyOf") or schema.get("oneOf")
  choices = choices if isinstance(choices, list) else []
  return {kind for choice in choices for kind in _types(choice, root, depth - 1)}


def _typed(key: str, text: str, types: set[str]) -> Any:
  """The value that a text means where one of `types` is wanted.

  Templates write Python's True and None as well as JSON's words.
  """
  if not types or types == {"string"}:
    return text
  word = text.strip()
  try:
    value = _WORDS[word.lower()] if word.lower() in _WORDS else _whole(word)
    kinds = _kinds(value)
    if kinds & types:
      return int(value) if "integer" in kinds & types else value
    why = f"{sorted(kinds)[0]} was given"
  except Unclear as error:
    why = str(error)
  if "string" in types:
    return text
  raise Unclear(f"the parameter {key} must be {' or '.join(sorted(types))}: {why}")


def _whole(text: str) -> Any:
  value, end = read_json(text, 0)
  if end < len(text):
    raise Unclear(f"bad JSON, text after its end: {near(text, end)}")
  return value


def _kinds(value: Any) -> set[str]:
  """The names of a value's JSON types."""
  if value is None or isinstance(value, bool):
    return {"null" if value is None else "boolean"}
  if isinstance(value, float):
    return {"number", "integer"} if value.is_integer() else {"number"}
  return {
      int: {"number", "integer"},
      str: {"string"},
      list: {"array"},
      dict: {"object"},
  }[type(value)]


FORMAT = Format(
    marks=(OPEN, CLOSE),
    form=f"{OPEN}<function=TOOL><parameter=NAME>VALUE</parameter></function>{CLOSE}",
    read=_read,
)
