"""Mistral: `[TOOL_CALLS][{"name": ..., "arguments": {...}}]`, or the newer
`[TOOL_CALLS]name[ARGS]{...}`, once a call, with `[CALL_ID]id` before `[ARGS]` in
some versions. No mark closes a call, so only another may follow it. Source:
the chat templates of Mistral 7B v0.3 and Mistral Small 3.
"""

from __future__ import annotations

import re

from clawgym_jax.chat.calls.call import (
    Call,
    Format,
    Tools,
    Unclear,
    from_object,
    make,
    near,
    read_json,
    scan,
    skip_blank,
)

OPEN = "[TOOL_CALLS]"

_NAMED = re.compile(r"([\w.-]+)\s*(?:\[CALL_ID\]\s*(\w+)\s*)?(?:\[ARGS\]\s*)?(?=\{)")


def _read(text: str, tools: Tools) -> tuple[str, list[Call]]:
  return scan(text, _read_calls, OPEN)


def _read_calls(text: str, at: int) -> tuple[list[Call], int]:
  at = skip_blank(text, at)
  if named := _NAMED.match(text, at):
    arguments, at = read_json(text, named.end())
    calls = [make(named.group(1), arguments, named.group(2))]
  elif text.startswith("[", at):
    values, at = read_json(text, at)
    if not values:
      raise Unclear("the list of calls is empty")
    calls = [from_object(value, "arguments") for value in values]
  else:
    raise Unclear(f"a list of calls must follow {OPEN}, not {near(text, at)}")
  at = skip_blank(text, at)
  if at < len(text) and not text.startswith(OPEN, at):
    raise Unclear(f"nothing may follow a call, but {near(text, at)} does")
  return calls, at


FORMAT = Format(
    marks=(OPEN,),
    form=OPEN + '[{"name": "TOOL", "arguments": {"NAME": "VALUE"}}]',
    read=_read,
    id_length=9,
)
