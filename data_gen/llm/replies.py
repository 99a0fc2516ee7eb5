"""Reads what a model wrote: whole, in the form asked for and within bounds, or not.

A JSON object stands alone or in one fenced block, a program in one fenced block
of Python. `BadReply` says what is wrong in words for the model. Nothing that is
read here is run here.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.rubric import Criterion, rubric_from_record
from clawgym_jax.contracts.services import SERVICES
from sandbox.backends.base import Files

MOST_FILES = 64
MOST_BYTES = 1 << 20  # of one file
_MOST_PATH = 200
_MOST_PROGRAM = 100_000  # bytes
_INSTRUCTION = (40, 6_000)  # characters
_FENCE = re.compile(r"^```([\w+-]*)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_GRADE = ("workspace", "final_message", "transcript", "services")


class BadReply(Exception):
  """A reply that is of no use: `cause` is its kind."""

  def __init__(self, cause: str, text: str) -> None:
    super().__init__(text)
    self.cause = cause


@dataclass(frozen=True)
class Written:
  """A task as its writer gave it. `services` are seed files by name."""

  instruction: str
  files: Files
  requires: tuple[str, ...]
  services: Files
  difficulty: int


@dataclass(frozen=True)
class Repair:
  """What is to change; None and empty where it stays.

  Attributes:
    files: input files by path; None takes one away.
    again: whether the agent shall try once more although nothing it sees changed.
  """

  instruction: str | None
  files: dict[str, bytes | None]
  check: str | None
  again: bool


def idea(text: str) -> dict[str, Any]:
  """title, goal, inputs and deliverables of an idea."""
  raw = _object(text)
  found = {
      "title": _text(raw, "title", 3, 200),
      "goal": _text(raw, "goal", 20, 3_000),
      "inputs": _texts(raw, "inputs", 1, MOST_FILES),
      "deliverables": _texts(raw, "deliverables", 1, 8),
  }
  return found


def task(text: str) -> Written:
  raw = _object(text)
  given = raw.get("files")
  if not isinstance(given, list) or not given:
    raise _form("files must be a list of at least one {path, content}")
  if len(given) > MOST_FILES:
    raise _form(f"there are {len(given)} files, of {MOST_FILES} at most")
  files: Files = {}
  for number, file in enumerate(given):
    where = f"files[{number}]"
    if not isinstance(file, dict):
      raise _form(f"{where} must be an object with path and content")
    path = _path(file.get("path"), f"{where}.path")
    if path in files:
      raise _form(f"{path} is there twice")
    files[path] = _contents(file.get("content"), f"{where}.content")
  _no_file_is_a_folder(files)
  given = "requires" in raw and _texts(raw, "requires", 0, len(SERVICES))
  requires = tuple(dict.fromkeys(given or ()))
  for name in requires:
    if name not in SERVICES:
      raise _form(f"requires names {name!r}; there are {', '.join(SERVICES)}")
  difficulty = raw.get("difficulty", 3)
  if type(difficulty) is not int or not 1 <= difficulty <= 5:
    raise _form("difficulty must be a whole number from 1 to 5")
  return Written(
      instruction=_text(raw, "instruction", *_INSTRUCTION),
      files=dict(sorted(files.items())),
      requires=requires,
      services=_seeds(raw.get("services") or {}, requires),
      difficulty=difficulty,
  )


def program(text: str) -> str:
  """The source of check.py."""
  blocks = [body for language, body in _blocks(text) if language in ("python", "py")]
  if len(blocks) != 1:
    raise BadReply(
        "no_program", f"it holds {len(blocks)} fenced blocks of python, not one"
    )
  return _checked(blocks[0])


def rubric(text: str, delivered: set[str]) -> tuple[Criterion, ...]:
  """The criteria, each of a file in `delivered` or, where its path is "", of what the
  agent said."""
  raw = _object(text).get("criteria")
  try:
    criteria = rubric_from_record(raw, "criteria")
  except RecordError as error:
    raise _form(str(error)) from None
  for criterion in criteria:
    if criterion.file_path and criterion.file_path not in delivered:
      paths = ", ".join(sorted(delivered))
      raise _form(f"{criterion.name}: file_path must be \"\" or one of {paths}")
  return criteria


def repair(text: str) -> Repair:
  blocks = _blocks(text)
  programs = [body for language, body in blocks if language in ("python", "py")]
  objects = [body for language, body in blocks if language in ("json", "")]
  if not blocks and text.startswith("{"):
    objects = [text]
  if len(programs) > 1 or len(objects) > 1 or not programs + objects:
    raise BadReply(
        "no_repair", "it needs one fenced block of json, one of python, or one of each"
    )
  raw = _parsed(objects[0]) if objects else {}
  instruction = raw.get("instruction")
  if instruction is not None:
    instruction = _text(raw, "instruction", *_INSTRUCTION)
  given = raw.get("files") or {}
  if not isinstance(given, dict) or len(given) > MOST_FILES:
    raise _form(f"files must map at most {MOST_FILES} paths to their new content")
  found = Repair(
      instruction=instruction,
      files={
          _path(path, "a path in files"): (
              None if content is None else _contents(content, f"files[{path!r}]")
          )
          for path, content in given.items()
      },
      check=_checked(programs[0]) if programs else None,
      again=raw.get("solve_again") is True,
  )
  if found == Repair(None, {}, None, False):
    raise BadReply("no_repair", "it changes nothing")
  return found


def repaired(written: Written, change: Repair) -> Written:
  """`written` with the change; `BadReply` where that is no task any more."""
  files = {**written.files, **change.files}
  left = {path: data for path, data in sorted(files.items()) if data is not None}
  if not left or len(left) > MOST_FILES:
    raise _form(f"{len(left)} files would be left, of 1 to {MOST_FILES}")
  _no_file_is_a_folder(left)
  return Written(
      instruction=change.instruction or written.instruction,
      files=left,
      requires=written.requires,
      services=written.services,
      difficulty=written.difficulty,
  )


# Parts


def _form(text: str) -> BadReply:
  return BadReply("wrong_form", text)


def _blocks(text: str) -> list[tuple[str, str]]:
  return [(m.group(1).lower(), m.group(2)) for m in _FENCE.finditer(text)]


def _object(text: str) -> dict[str, Any]:
  """The one JSON object of a reply."""
  blocks = [body for language, body in _blocks(text) if language in ("json", "")]
  if len(blocks) > 1:
    raise BadReply("no_json", f"it holds {len(blocks)} blocks of JSON, not one")
  if not blocks and not text.startswith("{"):
    raise BadReply("no_json", "it is no JSON object, bare or in one ```json block")
  return _parsed(blocks[0] if blocks else text)


def _parsed(text: str) -> dict[str, Any]:
  try:
    raw = json_text.parse(text)
  except ValueError as error:
    raise BadReply("no_json", f"its JSON can't be read: {error}") from None
  if not isinstance(raw, dict) or not json_text.recordable(raw):
    raise BadReply("no_json", "its JSON is no object of plain values")
  return raw


def _text(raw: dict[str, Any], key: str, least: int, most: int) -> str:
  value = raw.get(key)
  if not isinstance(value, str) or not least <= len(value.strip()) <= most:
    raise _form(f"{key} must be a text of {least} to {most} characters")
  _encoded(value, key)
  return value.strip()


def _texts(raw: dict[str, Any], key: str, least: int, most: int) -> list[str]:
  value = raw.get(key)
  if (
      not isinstance(value, list)
      or not least <= len(value) <= most
      or not all(isinstance(item, str) and 0 < len(item) <= 500 for item in value)
  ):
    raise _form(f"{key} must be a list of {least} to {most} texts")
  for item in value:
    _encoded(item, key)
  return value


def _encoded(text: str, where: str) -> bytes:
  try:
    return text.encode()
  except UnicodeEncodeError:
    raise _form(f"{where} holds half of a surrogate pair") from None


def _contents(value: Any, where: str) -> bytes:
  if not isinstance(value, str):
    raise _form(f"{where} must be a text")
  data = _encoded(value, where)
  if len(data) > MOST_BYTES:
    raise _form(f"{where} has {len(data)} bytes, of {MOST_BYTES} at most")
  return data


def _path(value: Any, where: str) -> str:
  """A path inside the workspace, written in one way."""
  if not isinstance(value, str) or not 0 < len(value) <= _MOST_PATH:
    raise _form(f"{where} must be a text of 1 to {_MOST_PATH} characters")
  _encoded(value, where)
  parts = value.split("/")
  if "\\" in value or not value.isprintable() or {"", ".", "..", "~"} & set(parts):
    raise BadReply(
        "path_outside",
        f"{where} = {value!r} must be relative, inside the workspace, with / between"
        " plain names",
    )
  if ".git" in parts:
    raise _form(f"{where} = {value!r} lies in a repository, which can't be written so")
  return value


def _no_file_is_a_folder(files: Files) -> None:
  for path in files:
    parts = path.split("/")
    for count in range(1, len(parts)):
      if "/".join(parts[:count]) in files:
        raise _form(f"{'/'.join(parts[:count])} is both a file and a folder")


def _seeds(given: Any, requires: tuple[str, ...]) -> Files:
  """The services' seed files, of lists of records by service."""
  sound = isinstance(given, dict)
  if not sound or not all(isinstance(records, list) for records in given.values()):
    raise _form("services must map a service to a list of records")
  files: Files = {}
  for name, records in sorted(given.items()):
    if name not in requires:
      raise _form(f"services holds {name!r}, which requires does not name")
    lines = [_encoded(json_text.dump(record), f"services.{name}") for record in records]
    file = SERVICES[name]
    joined = b"\n".join(lines) if file.endswith(".jsonl") else b",\n".join(lines)
    data = joined + b"\n" if file.endswith(".jsonl") else b"[" + joined + b"]\n"
    if len(data) > MOST_BYTES:
      raise _form(f"services.{name} has {len(data)} bytes, of {MOST_BYTES} at most")
    files[file] = data
  return files


def _checked(source: str) -> str:
  """A program with the one function that is called, and of the standard library's
  Python; what it does is the sandbox's to bound."""
  if len(_encoded(source, "the program")) > _MOST_PROGRAM:
    raise _form(f"the program has more than {_MOST_PROGRAM} bytes")
  try:
    tree = ast.parse(source)
  except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
    raise BadReply("no_program", f"the program can't be compiled: {error}") from None
  for node in tree.body:
    if isinstance(node, ast.FunctionDef) and node.name == "grade":
      names = tuple(argument.arg for argument in node.args.args)
      if names[: len(_GRADE)] == _GRADE and len(names) == len(_GRADE):
        return source
      raise BadReply("no_program", f"grade must take ({', '.join(_GRADE)})")
  raise BadReply("no_program", "the program defines no function grade")
