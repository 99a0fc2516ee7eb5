"""Hermes, Qwen2.5, Qwen3: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

A list of such objects between the tags is as many calls (SmolLM2 writes them
so). Source: the model cards and chat templates of these models.
"""

from __future__ import annotations

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

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def _read(text: str, tools: Tools) -> tuple[str, list[Call]]:
  return scan(text, _read_call, OPEN, CLOSE)


def _read_call(text: str, at: int) -> tuple[list[Call], int]:
  # The JSON is read before the closing tag is looked for: a string in it may
  # hold that tag.
  value, at = read_json(text, skip_blank(text, at))
  at = skip_blank(text, at)
  if not text.startswith(CLOSE, at):
    raise Unclear(f"a call must end with {CLOSE}, not {near(text, at)}")
  values = value if isinstance(value, list) else [value]
  if not values:
    raise Unclear("the list of calls is empty")
  return [from_object(value, "arguments") for value in values], at + len(CLOSE)


FORMAT = Format(
    marks=(OPEN, CLOSE),
    form=OPEN + '{"name": "TOOL", "arguments": {"NAME": "VALUE"}}' + CLOSE,
    read=_read,
)
