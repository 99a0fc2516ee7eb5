"""Llama 3: `{"name": ..., "parameters": {...}}`, with or without `<|python_tag|>`.

Without the mark a message is a call only if it is nothing but such objects,
each with both keys, and if tools were offered: JSON may as well be an answer.
Several calls are parted by `;` or white space. Source: Meta's prompt formats
of Llama 3.1 and 3.2. The built-in `tool.call(...)` form is not read.
"""

from __future__ import annotations

import re

from clawgym_jax.chat.calls.call import (
    Call,
    Format,
    Tools,
    Unclear,
    from_object,
    near,
    read_json,
    scan,
    skip_blank,
)

OPEN = "<|python_tag|>"

_MEANT = re.compile(r'\s*\{\s*("type"\s*:\s*"function"\s*,\s*)?"name"\s*:')
_BETWEEN = re.compile(r"\s*;?\s*")
_KEYS = ("parameters", "arguments")


def _read(text: str, tools: Tools) -> tuple[str, list[Call]]:
  at = skip_blank(text, 0)
  if not text.startswith("{", at):
    return scan(text, _read_calls, OPEN)
  try:
    value, _ = read_json(text, at)
  except Unclear:
    if _MEANT.match(text) and any(f'"{key}"' in text for key in _KEYS):
      raise
    return scan(text, _read_calls, OPEN)
  if not isinstance(value.get("name"), str) or not any(key in value for key in _KEYS):
    return scan(text, _read_calls, OPEN)  # an answer that is JSON
  calls, _ = _read_calls(text, at)
  return "", calls


def _read_calls(text: str, at: int) -> tuple[list[Call], int]:
  """Calls up to the end of the text: no mark closes them, so no text may follow."""
  calls: list[Call] = []
  at = skip_blank(text, at)
  while True:
    if not text.startswith("{", at):
      raise Unclear(f"a call must be a JSON object, not {near(text, at)}")
    value, at = read_json(text, at)
    calls.append(from_object(value, *_KEYS))
    at = _BETWEEN.match(text, at).end()
    if text.startswith(OPEN, at):
      at = skip_blank(text, at + len(OPEN))
    elif at == len(text):
      return calls, at


FORMAT = Format(
    marks=(OPEN,),
    form='{"name": "TOOL", "parameters": {"NAME": "VALUE"}}',
    read=_read,
    bare="{",
)
