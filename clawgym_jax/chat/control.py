"""Keeps what messages say apart from what a template writes.

A control token counts only where the template wrote it. So before a template
sees a message, every control token spelled inside it is broken with a mark, a
private character that occurs nowhere in the conversation; the tokenizer drops
the mark and encodes such text as text. A string that could become a control
token together with what stands beside it gets a mark at that end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from clawgym_jax.contracts.errors import RecordError

Message = dict[str, Any]

_MARKS = [chr(code) for code in (*range(0xE000, 0xF8FF), *range(0xF0000, 0xF1000))]
_SAID = ("content", "reasoning_content", "reasoning", "thinking", "name", "tool_call_id")


class Breaker:
  """Breaks the tokens it was made with, wherever they are spelled."""

  def __init__(self, tokens: Iterable[str]):
    self._tokens = frozenset(tokens)
    self._lengths: dict[str, list[int]] = {}
    for token in self._tokens:
      lengths = self._lengths.setdefault(token[0], [])
      if len(token) not in lengths:
        lengths.append(len(token))
    first = "".join(map(re.escape, self._lengths))
    self._first = re.compile(f"[{first}]") if first else re.compile("(?!)")
    self._longest = max(map(len, self._tokens), default=0)
    self._heads = {t[:n] for t in self._tokens for n in range(1, len(t))}
    self._tails = {t[n:] for t in self._tokens for n in range(1, len(t))}

  def __call__(self, text: str, mark: str) -> str:
    """`text` with a mark inside or beside whatever could become a token."""
    starts = []
    for match in self._first.finditer(text):
      at = match.start()
      if any(text[at : at + n] in self._tokens for n in self._lengths[match.group()]):
        starts.append(at + 1)
    edges = range(1, min(len(text), self._longest - 1) + 1)
    inner = len(text) < self._longest and not text.isalnum() and text != ""
    inner = inner and any(text in token for token in self._tokens)
    before = inner or any(text[:n] in self._tails for n in edges)
    after = inner or any(text[-n:] in self._heads for n in edges)
    if not starts and not before and not after:
      return text
    cuts = [0, *starts, len(text)]
    broken = mark.join(text[a:b] for a, b in zip(cuts, cuts[1:]))
    return mark * before + broken + mark * after


def broken(
    messages: list[Message],
    tools: list[dict[str, Any]] | None,
    *,
    said: Breaker,
    given: Breaker,
    mark: str | None = None,
) -> tuple[list[Message], list[dict[str, Any]] | None, str]:
  """The conversation with control tokens broken, and the mark that was used.

  `said` breaks what assistants say, `given` everything else. Messages are
  taken as `template.presented` makes them; `mark` must occur in none of them.
  """
  mark = mark or _unused([messages, tools])
  result = []
  for message in messages:
    breaker = said if message["role"] == "assistant" else given
    changed = dict(message)
    for key in _SAID:
      if key in changed:
        changed[key] = _through(changed[key], breaker, mark)
    if "tool_calls" in changed:
      changed["tool_calls"] = _through(changed["tool_calls"], breaker, mark)
    result.append(changed)
  return result, _through(tools, given, mark), mark


def _through(value: Any, breaker: Breaker, mark: str) -> Any:
  if isinstance(value, str):
    return breaker(value, mark)
  if isinstance(value, dict):
    return {
        _through(k, breaker, mark): _through(v, breaker, mark) for k, v in value.items()
    }
  if isinstance(value, (list, tuple)):
    return [_through(item, breaker, mark) for item in value]
  return value


def _unused(value: Any) -> str:
  strings = list(_strings(value))
  for mark in _MARKS:
    if not any(mark in text for text in strings):
      return mark
  raise RecordError("a message uses every private character, so none can mark it")


def _strings(value: Any) -> Iterator[str]:
  if isinstance(value, str):
    yield value
  elif isinstance(value, dict):
    for key, item in value.items():
      yield from _strings(key)
      yield from _strings(item)
  elif isinstance(value, (list, tuple)):
    for item in value:
      yield from _strings(item)
