"""Whether a chat template only ever adds to what it wrote before.

New messages are laid out behind a short stand-in for their conversation, which
can't show what a template does to turns further back: dropping old calls,
cutting old results, keeping the last few messages, counting turns. So for each
kind of conversation a made-up one, as long as the real one and longer, is laid
out at its questions and tool results: each text must start with the one before,
and equal turns must be written alike wherever they stand. Not seen is what a
template does beyond some 8,000 characters of one message, or for its words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from clawgym_jax.chat.template import Message
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.errors import RecordError

# Words of made-up messages: found in what a template writes, and in nothing else.
SYSTEM, ASKED, SAID, THOUGHT = "qsystemq", "qaskedq", "qsaidq", "qthoughtq"
_CALLED, _REPLIED = "qcalledq", "qrepliedq"
_NAMES = {
    SYSTEM: "the system message",
    ASKED: "the user's message",
    SAID: "the assistant's message",
    THOUGHT: "the assistant's thinking",
    _CALLED: "the assistant's call",
    _REPLIED: "the tool's result",
}
THINK, THINK_END = "<think>", "</think>"
NO_ID = "000000000"  # nine characters, which Mistral's templates insist on
TOOL = {
    "type": "function",
    "function": {
        "name": "qtoolq",
        "description": "qtoolq",
        "parameters": {"type": "object", "properties": {}, "required": []},
    },
}

_ROUNDS = 8  # of questions and calls that are looked at one by one
_LONG = 1000  # times a word in the first message of each kind


class NotAppendOnly(RecordError):
  """The template would write earlier turns differently; a new conversation may do."""


@dataclass(frozen=True)
class Kind:
  """What of a conversation can change how its earlier turns are written."""

  system: bool
  tools: bool
  calls: bool
  questions: bool  # several
  thoughts: bool


_longest: WeakKeyDictionary[Tokenizer, dict[tuple[Kind, str], int]] = WeakKeyDictionary()


def check(tokenizer: Tokenizer, kind: Kind, length: int, variables: dict[str, Any]) -> None:
  """`NotAppendOnly` if conversations of this kind and length are rewritten.

  `length` is in messages. A tokenizer is asked anew only about longer ones.
  """
  if not kind.calls and not kind.questions:
    return
  known = _longest.setdefault(tokenizer, {})
  key = kind, repr(sorted(variables.items()))
  rounds = known.get(key, _ROUNDS // 2)
  while 2 * rounds < length or rounds < _ROUNDS:
    rounds *= 2
    _compare(tokenizer, kind, rounds, variables)
    known[key] = rounds


def thinking(thought: str | None) -> str:
  """A thought as models write it before what they say; nothing for None."""
  return "" if thought is None else f"{THINK}\n{thought}\n{THINK_END}\n\n"


def changed(before: str, after: str) -> str:
  """Which message of `before` is written differently in `after`, and how."""
  pairs = enumerate(zip(before, after))
  at = next((i for i, (a, b) in pairs if a != b), min(len(before), len(after)))
  places = {before.find(word, max(at + 1 - len(word), 0)): word for word in _NAMES}
  places.pop(-1, None)
  which = _NAMES[places[min(places)]] if places else "the assistant's turn"
  start = max(at - 20, 0)
  return (
      f"the chat template writes {which} differently once other messages follow it:"
      f" {before[start : at + 40]!r} becomes {after[start : at + 40]!r}, so the prompt"
      " would not continue what was sampled"
  )


def _compare(
    tokenizer: Tokenizer, kind: Kind, rounds: int, variables: dict[str, Any]
) -> None:
  messages = list(_conversation(kind, rounds))
  ends = [i for i, m in enumerate(messages, 1) if m["role"] in ("user", "tool")]
  few, rest = ends[: 4 * _ROUNDS], ends[4 * _ROUNDS :]
  ends = few + rest[len(rest) // 3 :: len(rest) // 3 + 1] + rest[-1:]
  texts = [
      tokenizer.template.render(
          messages[:end], [TOOL] if kind.tools else None, **{**tokenizer.named, **variables}
      )
      for end in ends
  ]
  written: dict[str, str] = {}
  for index, (before, after) in enumerate(zip(texts, texts[1:]), 1):
    if not after.startswith(before):
      raise NotAppendOnly(changed(before, after))
    # The same messages come again; only the first of each kind are long.
    turn, text = repr(messages[ends[index - 1] : ends[index]]), after[len(before) :]
    if written.setdefault(turn, text) != text:
      raise NotAppendOnly(
          f"the chat template writes the same messages as {written[turn]!r} and, later"
          f" in a conversation, as {text!r}, so how they are written can't be known"
      )


def _conversation(kind: Kind, rounds: int) -> Iterator[Message]:
  """Questions, calls and answers; thinking only after the last question."""
  if kind.system:
    yield {"role": "system", "content": SYSTEM}
  for number in range(rounds if kind.questions else 0):
    times = _LONG if number == 0 else 1
    yield {"role": "user", "content": " ".join([ASKED] * times)}
    if kind.calls:
      yield from _exchange(times, None)
    yield {"role": "assistant", "content": " ".join([SAID] * times)}
  yield {"role": "user", "content": ASKED}
  for number in range(rounds if kind.calls else 0):
    times = _LONG if number == 0 else 1
    yield from _exchange(times, THOUGHT if kind.thoughts else None)


def _exchange(times: int, thought: str | None) -> Iterator[Message]:
  """A call and its result."""
  arguments = {"text": " ".join([_CALLED] * times)}
  function = {"name": "qtoolq", "arguments": arguments}
  calls = [{"id": NO_ID, "type": "function", "function": function}]
  yield {"role": "assistant", "content": thinking(thought), "tool_calls": calls}
  yield {"role": "tool", "content": " ".join([_REPLIED] * times), "tool_call_id": NO_ID,
         "name": "qtoolq"}  # fmt: skip
