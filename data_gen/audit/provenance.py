"""Which words of a solution's calls come from nowhere.

A word of a call is given if the user said it (a harness says the date, too) or an
earlier tool result showed it, in the same conversation, or if it belongs to the
vocabulary: the fixed code of the templates that calls are made of, and the programs
and Python that they are written in. Of calls that our generators didn't make
only numbers are judged, since nobody knows their vocabulary.
"""

from __future__ import annotations

import ast
import builtins
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
_PYTHON = frozenset(
    [*keyword.kwlist, *dir(builtins), *sys.stdlib_module_names]
    + [n for kind in (str, dict, list, set, bytes) for n in dir(kind)]
)


def invented(task: Task, transcript: Sequence[dict[str, Any]]) -> list[str]:
  """The words of the calls in `transcript` that come from nowhere, in order; a system
  message opens a new conversation there."""
  ours = task.family in REGISTRY or _ours(task)
  known = _vocabulary(task) if ours else frozenset()
  seen = set(words(task.now))
  found: dict[str, None] = {}
  for message in transcript:
    if message["role"] == "system":
      seen = set(words(task.now))
    for call in message.get("tool_calls") or ():
      arguments = json.loads(call["function"]["arguments"])
      for word in words(" ".join(_texts(arguments))):
        judged = ours or (word.isdigit() and len(word) > 1)
        if judged and not _given(word, seen, known):
          found[word] = None
    seen.update(words(str(message.get("content") or "")))
  return list(found)


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
