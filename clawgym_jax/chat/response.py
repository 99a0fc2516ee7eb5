"""Reads an assistant message from what a model said.

A call is `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`; every
call of a message is kept, in order. Calls drafted inside <think>...</think>
are thought, not made. Where any call can't be read the whole text stays
content, so that nothing is executed that the model did not say clearly.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

_THINK = re.compile(r"\A\s*<think>(.*?)</think>\s*", re.DOTALL)
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


def parse_response(text: str) -> dict[str, Any]:
  """An OpenAI assistant message; `tool_calls` only where there are some."""
  message: dict[str, Any] = {"role": "assistant"}
  thought = _THINK.match(text)
  if thought:
    message["reasoning_content"] = thought.group(1)
  said = text[thought.end() :] if thought else text
  if not thought and "<think>" in said:
    return {**message, "content": said}  # thinking that never ended
  calls = [_read_call(match.group(1)) for match in _CALL.finditer(said)]
  rest = _CALL.sub("", said)
  if not calls or None in calls or "<tool_call>" in rest:
    return {**message, "content": said}
  return {**message, "content": rest.strip() or None, "tool_calls": calls}


def _read_call(text: str) -> dict[str, Any] | None:
  try:
    raw = json.loads(text)
  except ValueError:
    return None
  if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
    return None
  arguments = raw.get("arguments", {})
  if not isinstance(arguments, dict):
    return None
  return {
      "id": "call" + secrets.token_hex(8),
      "type": "function",
      "function": {
          "name": raw["name"],
          "arguments": json.dumps(arguments, ensure_ascii=False),
      },
  }
