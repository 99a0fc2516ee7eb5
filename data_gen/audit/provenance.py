"""Which words of a solution's calls come from nowhere.

A word of a call is given if the user said it (a harness says the date, too) or an
earlier tool result showed it, in the same conversation, or if it belongs to the
vocabulary: the fixed code of the templates that calls are made of, and the programs
and Python that they are written in. Of calls that our generators didn't make nobody
knows the vocabulary, so their `literals` alone are judged, and a number is given in
whatever way it was written: 1,250.00 or 1250, "two" or 2, 15 % or 0.15.
"""

from __future__ import annotations

import ast
import builtins
import calendar
import json
import keyword
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import data_gen
from clawgym_jax.contracts.task import Task
from data_gen import families as families  # registers the families
from data_gen.audit import literals
from data_gen.audit.literals.dates import NUMBERED, Day, days
from data_gen.draft import REGISTRY

# Where the templates of calls are; pools of words, which name things, are not.
_TEMPLATES = (
    "compose/records.py", "compose/sinks.py", "compose/operations", "compose/kinds",
    "compose/chores", "compose/turns", "compose/hazards", "skills",
)  # fmt: skip
_SHELL = frozenset(
    "mv c C d e F g i l p s u sh python3 cat ls find sort sed grep head tail mkdir cp"
    " rm true false echo printf cd".split()
)
# Of every program: names of kinds, encodings and formats; what follows from a date.
_FORMS = frozenset(
    "csv tsv json jsonl yaml yml toml ini md txt html xml log ics vcf eml mbox db"
    " sqlite xlsx docx pdf zip tar gz py sh sql bak tmp true false null none nan utf"
    " ascii workspace am pm ok failed mode ro rw"
    " html head body table thead tbody tr td th ul ol li div span href title h1 h2 h3"
    " begin end vcalendar vevent version prodid uid dtstart dtend vcard fn tel".split()
    + [n.lower() for names in (calendar.day_name, calendar.month_name) for n in names]
    + [n.lower() for names in (calendar.day_abbr, calendar.month_abbr) for n in names]
)
_COUNTED = {
    **{word: float(n) for n, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve".split()
    )},
    "first": 1.0, "second": 2.0, "third": 3.0, "once": 1.0, "twice": 2.0, "both": 2.0,
    "half": 0.5, "quarter": 0.25, "dozen": 12.0, "twenty": 20.0, "thirty": 30.0,
    "fifty": 50.0, "hundred": 100.0, "thousand": 1000.0,
    **{name.lower(): float(n) for n, name in enumerate(calendar.month_name) if n},
    **{name.lower(): float(n) for n, name in enumerate(calendar.month_abbr) if n},
}  # fmt: skip
_LONGEST = 300  # digits that a float can hold
_NUMERAL = re.compile(
    r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+|\d{1,300})(?:\.\d{1,300})?(?![\w,]*\w|\.\d)"
)
_PYTHON = frozenset(
    [*keyword.kwlist, *dir(builtins), *sys.stdlib_module_names]
    + [n for kind in (str, dict, list, set, bytes) for n in dir(kind)]
)


def invented(task: Task, transcript: Sequence[dict[str, Any]]) -> list[str]:
  """The words of the calls in `transcript` that come from nowhere, in order; a system
  message opens a new conversation there."""
  judge = _ByWords(task) if task.family in REGISTRY or _ours(task) else _ByLiterals()
  judge.begin(task.now)
  found: dict[str, None] = {}
  for message in transcript:
    if message["role"] == "system":
      judge.begin(task.now)
    if message["role"] == "assistant":
      judge.listen()
    for call in message.get("tool_calls") or ():
      function = call["function"]
      arguments = json.loads(function["arguments"])
      found |= dict.fromkeys(judge.invented(function["name"], arguments))
    judge.see(str(message.get("content") or ""))
  return list(found)


class _ByWords:
  """Every word of a call is given, or of our own templates."""

  def __init__(self, task: Task):
    self._known = _vocabulary(task)

  def begin(self, now: str) -> None:
    self._seen = set(words(now))

  def listen(self) -> None:
    pass

  def see(self, text: str) -> None:
    self._seen.update(words(text))

  def invented(self, name: str, arguments: dict[str, Any]) -> Iterator[str]:
    for word in words(" ".join(_texts(arguments))):
      if not _given(word, self._seen, self._known):
        yield word


class _ByLiterals:
  """Every word and number of a call's literals is given, in whatever form."""

  def begin(self, now: str) -> None:
    self._seen: set[str] = set()
    self._stems: set[str] = set()
    self._values: set[float] = set()
    self._days: set[Day] = set()
    self._printed: set[str | Day] = set()
    self.see(now)

  def listen(self) -> None:
    """What the calls print from here on is not yet known."""
    self._printed = set()

  def see(self, text: str) -> None:
    new = set(words(text)) - self._seen - self._printed
    self._seen |= new
    self._stems |= {stem for word in new for stem in _stems(word)}
    self._values |= {_COUNTED[word] for word in new if word in _COUNTED}
    self._values |= {float(word) for word in new if _is_number(word)}
    numerals = set(_NUMERAL.findall(text)) - self._printed
    self._values |= {_value(number) for number in numerals}
    self._days |= set(days(text)) - self._printed

  def invented(self, name: str, arguments: dict[str, Any]) -> Iterator[str]:
    for literal in literals.of_call(name, arguments):
      if isinstance(literal, literals.Printed):
        self._printed |= {*words(literal), *_NUMERAL.findall(literal), *days(literal)}
        continue
      for pattern, shown in ((NUMBERED, self._shown_day), (_NUMERAL, self._shown)):
        yield from (n[0] for n in pattern.finditer(literal) if not shown(n[0]))
        literal = pattern.sub(" ", literal)
      yield from (word for word in words(literal) if not self._known(word))

  def _shown_day(self, text: str) -> bool:
    """Whether a day was named, or a month of which it is the first or last."""
    said = {(m, d) for y, m, d in self._days if not y}
    for year, month, day in days(text):
      end = day in (1, *range(28, 32))
      if (year, month, day) in self._days or (month, day) in said:
        return True
      if end and (float(year) in self._values and float(month) in self._values):
        return True
    return not any(days(text))  # it only looks like one

  def _shown(self, number: str) -> bool:
    value = _value(number)
    forms = (value, round(value * 100, 9), round(value / 100, 9))
    return any(form in self._values for form in forms)

  def _known(self, word: str) -> bool:
    if word in _FORMS or (word.isalpha() and len(word) == 1):
      return True
    if _given(word, self._seen, _FORMS):
      return True
    return any(stem in self._stems for stem in _stems(word))


def _stems(word: str) -> Iterator[str]:
  """A word as it is, and without the end that only its place in a sentence gives."""
  yield word
  if word.isalpha():
    for end in ("s", "es", "d", "ed", "ing", "ly"):
      if word.endswith(end) and len(word) - len(end) > 2:
        yield word.removesuffix(end)


def _is_number(word: str) -> bool:
  return word.isascii() and word.isdigit() and len(word) < _LONGEST


def _value(number: str) -> float:
  """What a numeral means; a comma in it is between thousands."""
  return float(number.replace(",", ""))


def words(text: str) -> list[str]:
  """Runs of letters and digits, in lower case."""
  return re.findall(r"[^\W_]+", text.lower())


def _given(word: str, seen: set[str], known: frozenset[str]) -> bool:
  if word in seen or word in known:
    return True
  parts = re.findall(r"[^\W\d]+|\d+", word)  # x7, f3, n0
  return len(parts) > 1 and all(p in seen or p in known for p in parts)


def _ours(task: Task) -> bool:
  return str(task.provenance.get("generator", "")).startswith("procedural-")


def _vocabulary(task: Task) -> frozenset[str]:
  family = REGISTRY.get(task.family)
  if family:
    return frozenset(w.lower() for w in (*family.vocabulary, *_SHELL)) | {"f"}
  return templates()


@cache
def templates() -> frozenset[str]:
  """The words of all string constants in the modules that make calls."""
  root = Path(data_gen.__file__).parent
  found = {w.lower() for w in _PYTHON | _SHELL}
  for place in _TEMPLATES:
    path = root / place
    for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
      if module.is_file():
        for text in _constants(ast.parse(module.read_text())):
          found.update(words(text))
  return frozenset(found)


def _constants(tree: ast.AST) -> Iterator[str]:
  """The string constants of a module but its docstrings."""
  docs = {
      id(node.value)
      for node in ast.walk(tree)
      if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
  }
  for node in ast.walk(tree):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
      if id(node) not in docs:
        # A template's \n is two characters of the code that it makes.
        yield node.value.replace("\\n", " ")


def _texts(value: Any) -> Iterator[str]:
  if isinstance(value, dict):
    for item in value.values():
      yield from _texts(item)
  elif isinstance(value, list):
    for item in value:
      yield from _texts(item)
  else:
    yield str(value).replace("\\n", " ").replace("\\t", " ")
