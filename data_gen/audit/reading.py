"""What a task's files give away, and what they leave unsaid.

No file that the agent sees holds the checks or the calls that solve it, and none
that the solution does not need holds what they expect, or what it hands over. And
what the checks expect can be found: each path that they judge is said in the request
or shown by a name or a text of the workspace, and each word that they expect is
said, is in a file, or comes out of the solution's run over them.
"""

from __future__ import annotations

import calendar
import gzip
import hashlib
import io
import json
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.task import SolutionCall, Task
from data_gen.audit.literals.texts import leaves
from data_gen.audit.provenance import words
from data_gen.audit.shares import used_inputs
from sandbox.backends.base import Files, gather
from sandbox.harnesses import asked_of

_SPOKEN_OF = ("expected.json", "solution/calls.json", "checks/check.py")
_COMPUTED = frozenset(
    ["null", "true", "false", "none", "nan", "yes", "low", "high"]
    + [n.lower() for names in (calendar.day_name, calendar.month_name) for n in names]
    + [n.lower() for names in (calendar.day_abbr, calendar.month_abbr) for n in names]
)
_LONG = 60  # characters of a line that nobody writes twice by chance
_MOST_BYTES = 16 << 20


def faults(task: Task, initial: Files, solved: Files) -> list[str]:
  """Causes to reject `task`, whose solution makes `solved` out of `initial`."""
  asked = asked_of(task)
  calls = [call for turn in task.reference() for call in turn.calls]
  used = used_inputs(initial, calls)
  needless = {
      path: data
      for path, data in initial.items()
      if solved.get(path) == data
      and used.isdisjoint([path, *map(str, PurePosixPath(path).parents)])
  }
  needed = [asked.encode(), *(initial[p] for p in sorted(initial.keys() - needless))]
  return [
      *_leaks(task, asked, initial, calls),
      *_answers(task, initial, solved, needless, needed),
      *_unsaid(task, asked, initial, solved),
  ]


def _leaks(
    task: Task, asked: str, initial: Files, calls: list[SolutionCall]
) -> Iterator[str]:
  """Lines of the checks' programs and of the calls, and whole files of the checks."""
  checks = gather(task.checks)
  secret: dict[bytes, str] = {}
  for name, data in checks.items():
    lines = [line.strip() for line in data.split(b"\n") if len(line) > _LONG]
    for line in lines[:: max(1, len(lines) // 20)]:
      secret[line] = f"checks/{name}"
  for call in [*calls, *task.fallen()]:
    for value in call.arguments.values():
      code = call.name in ("exec", "write") and isinstance(value, str)
      if code and len(value) > _LONG:
        secret[value.encode()] = "the solution"
  for path, data in [("the instruction", asked.encode()), *initial.items()]:
    for line, source in secret.items():
      # What is expected is looked for in `_answers`: in an input it may well stand.
      if line in data and not (source.endswith(".json") and path in initial):
        yield f"leak: {path} holds a line of {source}"
        break
    for name in _SPOKEN_OF:
      if name.encode() in data:
        yield f"leak: {path} speaks of {name}"
    digest = hashlib.sha256(data).hexdigest()
    if path in initial and any(data == other for other in checks.values()) and data:
      yield f"leak: {path} is one of the checks' files ({digest[:12]})"


def _answers(
    task: Task, initial: Files, solved: Files, needless: Files, needed: list[bytes]
) -> Iterator[str]:
  """What the checks expect, or the solution hands over, lying about in a file that
  is not needed for it, and in none that is."""
  answers = [
      (text, f"what checks/{name} expects")
      for name, data in sorted(gather(task.checks).items()) if name.endswith(".json")
      for text in _long_texts(data)
  ]  # fmt: skip
  made = ((path, data) for path, data in solved.items() if initial.get(path) != data)
  answers += [(data.strip(), f"all of {path}") for path, data in sorted(made)]
  for answer, what in answers:
    if len(answer) > _LONG and not any(answer in data for data in needed):
      for path, data in needless.items():
        if answer in data:
          yield f"leak: {path}, which the solution does not need, holds {what}"
          return


def _long_texts(data: bytes) -> list[bytes]:
  """The long texts in a JSON file."""
  try:
    value = json_text.parse(data)
  except ValueError:
    return []
  return [text.strip().encode() for text in leaves(value) if len(text) > _LONG]


def _unsaid(task: Task, asked: str, initial: Files, solved: Files) -> Iterator[str]:
  """Paths and words that the checks expect and nobody can know of."""
  specs = _specs(task)
  if not specs:
    return
  given = set(words(asked))
  for name, data in initial.items():
    given.update(words(name))
    given.update(w for text in _texts(name, data) for w in words(text))
  for spec in specs:
    unknown = [w for w in words(str(spec.get("path", ""))) if w not in given]
    if unknown:
      yield f"unsaid: the checks want {spec['path']}, and nothing says {unknown[0]!r}"
  made = {
      w
      for name, data in solved.items()
      if initial.get(name) != data
      for text in _texts(name, data)
      for w in words(text)
  }
  for word in sorted(expected_words(task) - given - made):
    if word.isalpha() and len(word) > 2 and not _derived(word, given | made):
      yield f"unsaid: the checks expect {word!r}, which nothing gives"
      return


def expected_words(task: Task) -> set[str]:
  """The words of the values that the deliverables are judged by."""
  kinds = ("columns", "rows", "lines", "value")
  values = [spec[kind] for spec in _specs(task) for kind in kinds if kind in spec]
  return set(words(json.dumps(values, ensure_ascii=False)))


def _specs(task: Task) -> list[dict[str, Any]]:
  """The deliverables in expected.json; checks that aren't made like ours have none."""
  path = task.checks / "expected.json"
  if not path.is_file():
    return []
  expected = json_text.parse(path.read_text())
  named = expected.get("deliverables") if isinstance(expected, dict) else None
  found = named.values() if isinstance(named, dict) else ()
  return [spec for spec in found if isinstance(spec, dict)]


def _derived(word: str, given: set[str]) -> bool:
  """Whether it follows from a date or a comparison, or is a part of a word."""
  return word in _COMPUTED or any(word in other for other in given)


def _texts(path: str, data: bytes) -> Iterator[str]:
  """What can be read in a file, unpacked where it is packed."""
  try:
    if data.startswith(b"\x1f\x8b"):
      with gzip.open(io.BytesIO(data)) as stream:
        inner = stream.read(_MOST_BYTES)
      if inner[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(inner), mode="r:") as archive:
          for member in archive:
            yield member.name
            if member.isfile():
              yield _decoded(archive.extractfile(member).read())
      else:
        yield _decoded(inner)
      return
    if data.startswith(b"PK\3\4"):
      with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
          yield info.filename
          if info.file_size < _MOST_BYTES:
            yield _decoded(archive.read(info))
      return
    if "/.git/objects/" in f"/{path}":
      yield _decoded(zlib.decompressobj().decompress(data, _MOST_BYTES))
      return
    for packed in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL):
      yield _decoded(zlib.decompressobj().decompress(packed, _MOST_BYTES))
  except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile):
    pass  # damaged: what stands there plainly is all
  yield _decoded(data)


def _decoded(data: bytes) -> str:
  for start, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
    if data.startswith(start):
      return data.decode(encoding, errors="replace")
  try:
    return data.decode()
  except UnicodeDecodeError:
    return data.decode("latin-1")
