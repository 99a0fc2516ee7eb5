"""One call as a model said it, and what all formats read alike.

JSON is read strictly: a key twice, a number that is not finite, half a
surrogate pair or nesting beyond `MAX_DEPTH` is unclear. Each of them means
different things to different readers, or stops one of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 64  # of JSON in a call; readers in Python recurse once a level

THINK, THINK_END = "<think>", "</think>"

Tools = list[dict[str, Any]] | None  # OpenAI tool schemas

_BLANK = re.compile(r"\s*")


class Unclear(Exception):
  """A call that can't be read; the text says why, in words for the model."""


@dataclass(frozen=True)
class Call:
  """`arguments` is the JSON text of an object; `id` only where the model said one."""

  name: str
  arguments: str
  id: str | None = None


@dataclass(frozen=True)
class Format:
  """How one family of models writes calls.

  Attributes:
    marks: what can't be met outside a thought unless a call is meant, the mark
      that begins one first; each has its first character once.
    form: what a call looks like, for the model to read.
    read: (text, tools) -> the text outside the calls, and the calls in order.
      Raises `Unclear`. Takes time linear in the text.
    bare: characters that begin a call without a mark, at the start of a message.
    id_length: letters and digits of a call's id, where the template insists.
  """

  marks: tuple[str, ...]
  form: str
  read: Callable[[str, Tools], tuple[str, list[Call]]]
  bare: str = ""
  id_length: int | None = None


def scan(
    text: str,
    read_calls: Callable[[str, int], tuple[list[Call], int]],
    opener: str,
    closer: str | None = None,
) -> tuple[str, list[Call]]:
  """Walks over text, thoughts and calls; returns the text outside, and the calls.

  `read_calls` gets the place after an opener and returns what it read and
  where it stopped. Calls drafted between <think> and </think> are not calls;
  where thought and speech can't be told apart, or a `closer` closes nothing, the
  text is `Unclear`.
  """
  known = [mark for mark in (opener, closer, THINK, THINK_END) if mark]
  marks = re.compile("|".join(map(re.escape, known)))
  outside: list[str] = []
  calls: list[Call] = []
  at = 0
  while mark := marks.search(text, at):
    outside.append(text[at : mark.start()])
    if mark.group() == opener:
      read, at = read_calls(text, mark.end())
      calls += read
      continue
    if mark.group() == closer:
      raise Unclear(f"a {closer} closes no call: {opener} must begin it")
    if mark.group() == THINK_END:
      if calls:
        raise Unclear("a </think> that nothing opened follows a call")
      at = mark.end()
    else:
      end = text.find(THINK_END, mark.end())
      if end < 0 and text.find(opener, mark.end()) >= 0:
        raise Unclear("a call stands in a <think> that is never closed")
      at = len(text) if end < 0 else end + len(THINK_END)
    outside.append(text[mark.start() : at])
  outside.append(text[at:])
  return "".join(outside), calls


def skip_blank(text: str, at: int) -> int:
  """The first place from `at` on that is not white space."""
  return _BLANK.match(text, at).end()


def read_json(text: str, at: int) -> tuple[Any, int]:
  """The JSON value at `at`, and where it ends; `Unclear` if there is none."""
  try:
    return _DECODER.raw_decode(text, at)
  except json.JSONDecodeError as error:
    raise Unclear(f"bad JSON, {error.msg}: {near(text, error.pos)}") from None
  except RecursionError:
    raise Unclear("the JSON is nested too deeply") from None
  except ValueError as error:  # a number with thousands of digits
    raise Unclear(f"bad JSON, {error}") from None


def near(text: str, at: int) -> str:
  """What stands at a place, short enough to quote."""
  return repr(text[at : at + 30]) if at < len(text) else "the end of the message"


def from_object(value: Any, *keys: str) -> Call:
  """A call said as a JSON object whose arguments stand under one of `keys`."""
  if not isinstance(value, dict):
    raise Unclear("a call must be a JSON object with a name and its arguments")
  unknown = sorted(value.keys() - {"name", "id", "type", *keys})
  if unknown:
    raise Unclear(
        f"a call has a name and {' or '.join(keys)}, but this one has {unknown[0]!r}"
    )
  given = [key for key in keys if key in value]
  if len(given) > 1:
    raise Unclear(f"a call has {' or '.join(keys)}, not both")
  arguments = value[given[0]] if given else {}
  said_id = value.get("id")
  return make(
      value.get("name"), arguments, said_id if isinstance(said_id, str) else None
  )


def make(name: Any, arguments: Any, said_id: str | None = None) -> Call:
  """A checked call; `Unclear` if it names no tool or has no object of arguments."""
  if not isinstance(name, str) or not name.strip():
    raise Unclear("a call needs the name of a tool, a string")
  half = Unclear("a \\u escape in the call is half of a character")
  try:
    name.encode()
  except UnicodeEncodeError:
    raise half from None
  if not isinstance(arguments, dict):
    raise Unclear(f"the arguments of {name} must be a JSON object")
  if _deeper(arguments, MAX_DEPTH):
    raise Unclear(f"the arguments of {name} are nested too deeply")
  try:
    text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    text.encode()
  except UnicodeEncodeError:
    raise half from None
  except ValueError:
    raise Unclear(f"the arguments of {name} hold a number that is not finite") from None
  return Call(name, text, said_id)


def _deeper(value: Any, levels: int) -> bool:
  if not isinstance(value, (dict, list)):
    return False
  if levels == 0:
    return True
  items = value.values() if isinstance(value, dict) else value
  return any(_deeper(item, levels - 1) for item in items)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  value = dict(pairs)
  if len(value) < len(pairs):
    seen: set[str] = set()
    for key, _ in pairs:
      if key in seen:
        raise Unclear(f"the JSON has the key {key!r} twice")
      seen.add(key)
  return value


def _constant(name: str) -> Any:
  raise Unclear(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant)
