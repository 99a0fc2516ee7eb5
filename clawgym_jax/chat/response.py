"""Reads an assistant message from what a model said, whole or piece by piece.

One parser does both: `parse_response` feeds a `StreamParser` the whole text, so
what is streamed sums to what is parsed, however the text is cut. All calls of a
message are kept, in order, or none is: where one is malformed or cut the text
stays content and `parse_error` says why, in words for the model. So nothing is
executed that the model did not say clearly. Calls drafted inside
<think>...</think> are thought, not made.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from typing import Any

from clawgym_jax.chat.calls import FORMATS, Call, Unclear, detect_format
from clawgym_jax.chat.calls.call import THINK, THINK_END, Tools
from clawgym_jax.contracts.errors import UserError

__all__ = [
    "StreamParser",
    "detect_format",
    "join_deltas",
    "opens_thought",
    "parse_response",
]

Delta = dict[str, Any]

_ENDED = ("stop", "tool_calls")  # every other finish reason cuts a message


def parse_response(
    text: str,
    format: str = "hermes",
    *,
    tools: Tools = None,
    finish_reason: str = "stop",
    in_thought: bool = False,
) -> dict[str, Any]:
  """An OpenAI assistant message; see `StreamParser` for the arguments.

  `content` is a string, or None where there are calls and no words. The keys
  `reasoning_content`, `tool_calls` and `parse_error` are there only if they say
  something.
  """
  parser = StreamParser(format, tools=tools, in_thought=in_thought)
  return join_deltas([*parser.feed(text), *parser.finish(finish_reason)])


def join_deltas(deltas: Iterable[Delta]) -> dict[str, Any]:
  """The message that the deltas of one `StreamParser` add up to."""
  parts: dict[str, list[str]] = {}
  calls: list[dict[str, Any]] = []
  for delta in deltas:
    for name, value in delta.items():
      if name != "tool_calls":
        parts.setdefault(name, []).append(value)
        continue
      for call in value:
        calls.append({key: call[key] for key in ("id", "type", "function")})
  said = {name: "".join(pieces) for name, pieces in parts.items()}
  message = {"role": "assistant", "content": None if calls else "", **said}
  return {**message, "tool_calls": calls} if calls else message


def opens_thought(prompt: str) -> bool:
  """Whether a prompt's text ends inside a thought that the model goes on with."""
  return prompt.rstrip().endswith(THINK)


class StreamParser:
  """Reads one message as it is said.

  `feed` and `finish` return deltas in OpenAI's form. Thought and text are given
  as soon as they can't be anything else. From the first mark of a call on
  everything is held until `finish`, which gives each call in one delta: what
  comes later may still show that none was said clearly, and a call that has
  been given can't be taken back. Time and memory are linear in the text.

  Args:
    format: how the model writes calls, a key of `FORMATS` (see `detect_format`);
      `UserError` if it is not known.
    tools: the OpenAI tool schemas that were offered; None where that is not known.
    in_thought: whether the prompt has opened <think> already (`opens_thought`).
  """

  def __init__(
      self, format: str = "hermes", *, tools: Tools = None, in_thought: bool = False
  ) -> None:
    if format not in FORMATS:
      raise UserError(
          f"call format {format!r} is not known; known: {', '.join(FORMATS)}"
      )
    self._format = FORMATS[format]
    self._tools = tools
    # An answer may be JSON, so unmarked calls count only where there are tools.
    self._bare = self._format.bare if tools is None or tools else ""
    self._marks = (*self._format.marks, THINK)
    self._first_mark = re.compile("|".join(map(re.escape, self._marks)))
    self._state = self._in_thought if in_thought else self._at_start
    self._pending = ""  # the start of a mark, perhaps
    self._blank: list[str] = []  # white space whose fate the next word decides
    self._held: list[str] = []  # from the first call on
    self._has_thought = self._has_content = False
    self._deltas: list[Delta] = []

  def feed(self, piece: str) -> list[Delta]:
    """What a further piece of text adds, often nothing."""
    if self._held:
      self._held.append(piece)
      return []
    text: str | None = self._pending + piece
    self._pending = ""
    while text:
      text = self._state(text)
    return self._taken()

  def finish(self, finish_reason: str = "stop") -> list[Delta]:
    """What is left, the calls included.

    Any reason but "stop" and "tool_calls" means that the message was cut.
    """
    cut = finish_reason not in _ENDED
    if self._held:
      self._read_held(cut)
    elif self._state == self._in_thought:
      self._think(self._pending)
      if not cut:
        self._give("parse_error", _ENDLESS_THOUGHT)
    else:
      rest = "".join(self._blank) + self._pending
      self._give("content", rest)
    return self._taken()

  # Each state takes what it can of a text and returns what the next one is to
  # take, or None when it needs more.

  def _at_start(self, text: str) -> str | None:
    said = text.lstrip()
    self._blank.append(text[: len(text) - len(said)])
    if said.startswith(THINK):
      self._blank.clear()
      self._state = self._in_thought
      return said[len(THINK) :]
    if THINK.startswith(said):
      self._pending = said
      return None
    return self._begin(said)

  def _in_thought(self, text: str) -> str | None:
    end = text.find(THINK_END)
    if end < 0:
      self._think(self._keep_back(text, (THINK_END,)))
      return None
    self._think(text[:end])
    self._blank.clear()
    self._state = self._after_thought
    return text[end + len(THINK_END) :]

  def _after_thought(self, text: str) -> str | None:
    said = text.lstrip()
    return self._begin(said) if said else None

  def _begin(self, said: str) -> str | None:
    if self._bare and said[0] in self._bare:
      self._hold(said)
      return None
    self._state = self._in_content
    return said

  def _in_content(self, text: str) -> None:
    mark = self._first_mark.search(text)
    if mark:
      self._say(text[: mark.start()])
      self._hold(text[mark.start() :])
    else:
      self._say(self._keep_back(text, self._marks))

  def _keep_back(self, text: str, marks: tuple[str, ...]) -> str:
    """`text` without an end that may be the start of a mark; that waits."""
    length = _begun(text, marks)
    self._pending = text[len(text) - length :]
    return text[: len(text) - length]

  def _hold(self, text: str) -> None:
    self._held = [*self._blank, text]
    self._blank.clear()

  def _think(self, text: str) -> None:
    """Templates put newlines around a thought, which are not part of it."""
    if not self._has_thought:
      text = text.lstrip("\n")
    body = text.rstrip("\n")
    if body:
      self._give("reasoning_content", "".join(self._blank) + body)
      self._blank.clear()
      self._has_thought = True
    self._blank.append(text[len(body) :])

  def _say(self, text: str) -> None:
    """White space before a call is not content, so it waits for a word."""
    body = text.rstrip()
    if body:
      self._give("content", "".join(self._blank) + body)
      self._blank.clear()
      self._has_content = True
    self._blank.append(text[len(body) :])

  def _read_held(self, cut: bool) -> None:
    text = "".join(self._held)
    try:
      said, calls = self._format.read(text, self._tools)
      if calls and cut and _begun(text, self._format.marks):
        raise Unclear("the message ends where another call begins")
    except Unclear as error:
      self._give("content", text)
      form = f"Write every call like this: {self._format.form}"
      self._give("parse_error", f"{_CUT if cut else _MALFORMED % error} {form}")
      return
    if calls:
      said = said.rstrip() if self._has_content else said.strip()
    self._give("content", said)
    self._give_calls(calls)

  def _give_calls(self, calls: list[Call]) -> None:
    used: set[str] = set()
    for index, call in enumerate(calls):
      call_id = self._call_id(call.id, used)
      used.add(call_id)
      function = {"name": call.name, "arguments": call.arguments}
      entry = {"index": index, "id": call_id, "type": "function", "function": function}
      self._deltas.append({"tool_calls": [entry]})

  def _call_id(self, said: str | None, used: set[str]) -> str:
    """Letters and digits alone survive every harness.

    An id that the model said is kept only where its template has one, since
    tool results then refer to it.
    """
    length = self._format.id_length
    if length is None:
      return "call" + secrets.token_hex(8)
    if said and len(said) == length and said.isascii() and said.isalnum():
      if said not in used:
        return said
    return secrets.token_hex(length)[:length]

  def _give(self, name: str, text: str) -> None:
    if text:
      self._deltas.append({name: text})

  def _taken(self) -> list[Delta]:
    deltas, self._deltas = self._deltas, []
    return deltas


def _begun(text: str, marks: tuple[str, ...]) -> int:
  """How many characters at the end of `text` may be the start of a mark.

  A mark has its first character only once, so one place a mark is looked at.
  """
  longest = 0
  for mark in marks:
    at = text.rfind(mark[0], max(0, len(text) - len(mark) + 1))
    if at >= 0 and mark.startswith(text[at:]):
      longest = max(longest, len(text) - at)
  return longest


_MALFORMED = (
    "Error: a tool call in your last message can't be read: %s. Nothing was executed."
)
_CUT = (
    "Error: your last message was cut at its length limit inside a tool call."
    " Nothing was executed. Say less before the call, or call with less."
)
_ENDLESS_THOUGHT = (
    f"Error: your last message never closed its {THINK}, so all of it was thought."
    f" Nothing was executed. Write {THINK_END} before you answer or call a tool."
)
