"""The literals of a file that is written, by its kind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from data_gen.audit.literals.python import python
from data_gen.audit.literals.texts import PROSE, leaves, plain, prose, sql

PYTHONS = re.compile(r"python[\d.]*")
Shell = Callable[[str], Iterator[str]]


def contents(path: str, text: str, shell: Shell) -> Iterator[str]:
  """The literals of a file that is written, by its kind."""
  kind = path.rpartition(".")[2].lower() if "." in path else ""
  if kind == "py" or text.startswith(("#!/usr/bin/env python", "#!/usr/bin/python")):
    yield from python(text)
  elif kind in ("sh", "bash") or text.startswith(("#!/bin/sh", "#!/bin/bash")):
    yield from shell(text)
  elif kind == "sql":
    yield from sql(text)
  elif kind in ("md", "txt", "eml", "html", "rst", ""):
    for line in text.splitlines():
      yield from _line(line)
  elif kind in ("json", "jsonl", "ndjson"):
    try:
      value = json.loads(text)
    except (ValueError, RecursionError):
      value = text.splitlines()
    for leaf in leaves(value):
      yield from plain(leaf)
  else:
    for line in text.splitlines():
      for cell in re.split(r"[,;\t|]", line):
        yield from plain(cell)


def _line(line: str) -> Iterator[str]:
  """A line of a page: a value where it is a few words and neither heading nor
  sentence."""
  few = len(line.split()) < PROSE
  if few and not line.startswith("#") and not line.rstrip().endswith(tuple(".,:;!?")):
    yield from plain(line)
  else:
    yield from prose(line)


def document(line: str, body: str, shell: Shell) -> Iterator[str]:
  """The literals of a here-document by the command line that takes it."""
  target = re.search(r">>?\s*['\"]?([^\s'\"|;&]+)", line)
  program = re.match(r"\s*(?:\w+=\S*\s+|cd \S+ && )*(\S+)", line)
  name = program[1] if program else ""
  if PYTHONS.fullmatch(name.rpartition("/")[2]):
    yield from python(body)
  elif name in ("bash", "sh"):
    yield from shell(body)
  elif name == "sqlite3":
    yield from sql(body)
  else:
    yield from contents(target[1] if target else "x.csv", body, shell)
