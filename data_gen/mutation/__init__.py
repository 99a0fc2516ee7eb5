"""Makes a right result wrong in many small ways, to see that the checks notice.

A mutant is the state that the reference solution left with one thing changed:
a file edited by its kind (`edits`), taken back or lost, a commit remade, a
message that went out twice, an input harmed. Which of the possible ones are
taken is drawn by a key, the same on every run. The checks are never consulted.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from data_gen.mutation.edits import edits
from data_gen.mutation.repository import commits_remade
from sandbox.backends.base import Entry, Files, pack_entries, unpack, unpack_entries
from sandbox.verify.state import State

MOST = 12
LEAST = 10  # fewer say nothing of the checks; nearly every result allows them
_NOT_RESULTS = ("__pycache__/", ".pytest_cache/", ".pyc")
_SAID = ("body", "subject", "title", "to", "name", "text", "message")

Reports = Sequence[dict[str, Any]]
Change = dict[str, bytes | None]  # path -> new contents, or None for no file


@dataclass(frozen=True)
class Mutant:
  """One wrong version of a result; `what` says what is wrong."""

  what: str
  state: State


def mutants(
    initial: Files, right: State, key: str, most: int = MOST, asked: str | None = None
) -> list[Mutant]:
  """At most `most` wrong versions of `right`, the state after the solution.

  Every changed file gives some, in turn. An input is harmed once, a side effect
  is lost, doubled and altered. Where there is neither a file nor a side effect,
  the final message is what is wrong. Where `asked` is given, only files that it
  names are results, and whether inputs are to be kept is not known. Fewer than
  `most` are all that can be made.
  """
  after = unpack(right.snapshot)
  rng = random.Random(f"mutants {key}")
  kept = sorted(p for p in initial if after.get(p) == initial[p] and _result(p))
  found = _lost_or_twice(right) + _other_texts(right)[:1]
  if kept and asked is None:
    harmed = rng.choice(kept)
    what, new = edits(harmed, initial[harmed])[0]
    found.append(_changed(right, f"input {harmed}: {what}", {harmed: new}))
  by_file = _file_changes(initial, after, asked)
  for wrong in by_file:
    subtle, rest = wrong[:1], wrong[1:]
    rng.shuffle(rest)
    wrong[:] = subtle + rest
  rng.shuffle(by_file)
  turn = 0
  while len(found) < most and any(by_file):
    wrong = by_file[turn % len(by_file)]
    if wrong:
      found.append(_changed(right, *wrong.pop(0)))
    turn += 1
  found += _other_texts(right)[1 : 1 + max(0, LEAST - len(found))]
  if not by_file and not right.reports:
    found = [
        Mutant(f"final message: {what}", replace(right, final_message=new.decode()))
        for what, new in edits("", right.final_message.encode())
    ]
  return found[:most]


def spoiled(initial: Files, right: State) -> Mutant:
  """`right` with all that the solution did wrong at once, the last effect lost."""
  changes: Change = {}
  for wrong in _file_changes(initial, unpack(right.snapshot)):
    changes |= wrong[0][1]
  state = _changed(right, "spoiled", changes).state
  return _other_reports(state, "spoiled", list(right.reports)[:-1])


def _file_changes(
    initial: Files, after: Files, asked: str | None = None
) -> list[list[tuple[str, Change]]]:
  """For each file that the solution made, changed or removed: wrong versions."""
  by_file = []
  for path in sorted(initial.keys() | after.keys()):
    old, new = initial.get(path), after.get(path)
    if old == new or not _result(path) or ".git/" in path:
      continue
    if asked is not None and path.rpartition("/")[2] not in asked:
      continue
    undone: tuple[str, Change] = (f"{path}: undone", {path: old})
    back = "" if new is not None else "back, with "
    others = edits(path, old if new is None else new)
    wrong = [(f"{path}: {back}{what}", {path: data}) for what, data in others]
    by_file.append([undone, *wrong] if new is None else [*wrong, undone])
  return by_file + commits_remade(initial, after)


def _result(path: str) -> bool:
  return not any(part in path for part in _NOT_RESULTS)


def _changed(right: State, what: str, changes: Change) -> Mutant:
  old = list(unpack_entries(right.snapshot))
  modes = {e.name: e.mode for e in old if e.kind == "file"}
  entries = [e for e in old if e.name not in changes]
  entries += [
      Entry(path, data, mode=modes.get(path, 0o644))
      for path, data in sorted(changes.items())
      if data is not None
  ]
  return Mutant(what, replace(right, snapshot=pack_entries(entries)))


def _other_reports(right: State, what: str, reports: Reports) -> Mutant:
  return Mutant(what, replace(right, reports=reports))


def _lost_or_twice(right: State) -> list[Mutant]:
  """Without the last side effect, and with it twice."""
  if not right.reports:
    return []
  *before, last = right.reports
  return [
      _other_reports(right, "an effect lost", before),
      _other_reports(right, "an effect twice", [*before, last, last]),
  ]


def _other_texts(right: State) -> list[Mutant]:
  """With another text in the last side effect, the first that a reader would see."""
  if not right.reports:
    return []
  *before, last = right.reports
  place = _first_text(last["data"])
  found = []
  for what, text in edits("", _at(last["data"], place).encode()) if place else ():
    altered = copy.deepcopy(last)
    _at(altered["data"], place[:-1])[place[-1]] = text.decode(errors="replace")
    what = f"an effect with another text: {what}"
    found.append(_other_reports(right, what, [*before, altered]))
  return found


def _first_text(value: dict[str, Any]) -> tuple[str, ...]:
  """The keys that lead to it; none where there is no text."""
  for key, item in value.items():
    if key in _SAID and isinstance(item, str) and item:
      return (key,)
    if isinstance(item, dict) and (inner := _first_text(item)):
      return (key, *inner)
  return ()


def _at(value: Any, place: tuple[str, ...]) -> Any:
  for key in place:
    value = value[key]
  return value
