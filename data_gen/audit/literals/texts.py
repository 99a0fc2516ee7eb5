"""The literals of texts, patterns and SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w.]*\w)")
QUOTED = re.compile(r"'([^'\n]*)'|\"([^\"\n]*)\"")
_CRONTAB = re.compile(r"(?:[\d*/,-]+ ){4}[\d*/,A-Za-z-]+")
PROSE = 4  # words of a text that may be prose
_SCRATCH = re.compile(r"(?<![\w/.])(?:/tmp|/dev|~)(?:/[^\s'\"]*|(?![\w/]))|/workspace/")
SQL = re.compile(
    r"\s*(select|insert|update|delete|create|with|pragma|drop|alter)\s", re.IGNORECASE
)



class Printed(str):
  """A text that a command only prints. It is free, but what comes back of it is no
  evidence: nobody gives himself a value by printing it."""


def plain(text: str) -> Iterator[str]:
  """A text that is a value as a whole, but for prose."""
  text = _SCRATCH.sub(" ", text)
  said = text.split()
  if _CRONTAB.fullmatch(text.strip()):  # minute, hour, day and month, not weekdays
    said = [field for field in said[:4] if field not in ("0", "*")]
    text = " ".join(said)
  lower = sum(word.isalpha() and word.islower() for word in said)
  if len(said) >= PROSE and 2 * lower >= len(said):
    yield from prose(text)
  elif text.strip():
    yield text


def prose(text: str) -> Iterator[str]:
  """Names, numbers, addresses and paths in a text that was composed."""
  begins = True
  said = text.split()
  for number, word in enumerate(said):
    bare = word.strip("\"'()[]<>*_`~,;:!?.#-–—=+")
    after = said[number + 1] if number + 1 < len(said) else ""
    # A sentence begins with a capital; a name goes on with one, too.
    named = bare[:1].isupper() and (not begins or after[:1].isupper())
    if re.search(r"\d|\w[@/\\._]\w", bare) or named:
      yield bare
    if bare:
      begins = word.endswith((".", "!", "?", ":")) or word.startswith("#")


def sql(text: str) -> Iterator[str]:
  """Its quoted texts and numbers; tables and columns that are none raise an error."""
  for found in QUOTED.finditer(text):
    if found[1] is not None:
      yield from plain(unformatted(found[1]))
  bare = QUOTED.sub(" ", text)
  counts = r"(?i)\b(round|substr|limit|offset)\b[^)\n]*"
  yield from numbers(re.sub(counts, " ", bare))


def loose(text: str) -> Iterator[str]:
  """Quoted texts and numbers of two digits and more of what can't be parsed."""
  for found in QUOTED.finditer(text):
    yield from plain(unformatted(found[1] or found[2] or ""))
  for number in re.findall(_NUMBER, text):
    if len(number) > 1:
      yield number


def numbers(text: str) -> Iterator[str]:
  for number in re.findall(_NUMBER, text):
    if number not in ("0", "1", "100"):
      yield number


_ENCODINGS = re.compile(
    r"(?i)\b(utf-?(8|16|32)(-sig)?|latin-?1|iso-?8859-?\d+|cp\d{3,4})\b"
)


def unformatted(text: str) -> str:
  """A text without what formats and patterns are made of."""
  text = re.sub(r"%x[0-9a-f]{2}|%[-+#0 ]*\d*(?:\.\d+)?[A-Za-z%]", " ", text)
  text = re.sub(r"\{[\w.:,!<>^=+-]*\}", " ", text)
  text = text.replace("\\n", "\n").replace("\\t", "\t")
  text = re.sub(r"\[(?:\^[^\]\n]*|[^\]\n]*[-\\][^\]\n]*)\]", " ", text)
  return _ENCODINGS.sub(" ", _unescaped(text))


def unpatterned(text: str) -> str:
  """A regular expression without its signs: what is left has to match as it is."""
  text = re.sub(r"\(\?[a-zA-Z<!=:P]+\w*>?|\[\^?\]?[^\]\n]*\]|\{\d*,?\d*\}", " ", text)
  return _unescaped(text)


def _unescaped(text: str) -> str:
  return re.sub(r"\\(.)", r"\1", re.sub(r"\\[dDsSwWbBAZnrt1-9]", " ", text))


def leaves(value: Any, keys: bool = True) -> Iterator[str]:
  """The texts and numbers in a JSON value, and its keys."""
  if isinstance(value, dict):
    for key, item in value.items():
      if keys:
        yield str(key)
      yield from leaves(item, keys)
  elif isinstance(value, list):
    for item in value:
      yield from leaves(item, keys)
  elif value is not None and not isinstance(value, bool):
    yield str(value)
