"""Small wrong edits of one file, by its kind: what changes, and the new bytes.

Each leaves a file of the same kind with other contents: a digit, a word, a
record more or less. What a format leaves free (blanks, the order of keys, tags,
packing) is never touched, so whoever reads the file reads something else. The
checks are never consulted.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import sqlite3
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any

Edits = Iterator[tuple[str, bytes]]
_MOST_BYTES = 16 << 20  # of what is unpacked
_DAMAGED = (
    OSError, EOFError, ValueError, zlib.error, tarfile.TarError, zipfile.BadZipFile,
    sqlite3.Error, RecursionError, NotImplementedError, RuntimeError,
)  # fmt: skip


def edits(path: str, data: bytes) -> list[tuple[str, bytes]]:
  """Wrong versions of the file, the subtlest first, none twice."""
  try:
    found = list(_by_kind(path, data))
  except _DAMAGED:  # no file of its kind: any other text will do
    found = list(_text(data))
  backwards = data.strip()[::-1] + b"\n"
  found += [("emptied", b""), ("reversed", backwards), ("none", b"none\n")]
  found += [("a guess", b"42\n"), ("a round guess", b"1000\n"), ("yes", b"yes\n")]
  different: dict[bytes, str] = {}
  for what, new in found:
    if new.strip() != data.strip():
      different.setdefault(new, what)
  return [(what, new) for new, what in different.items()] or [("filled", b"x")]


def _by_kind(path: str, data: bytes) -> Edits:
  if data.startswith(b"SQLite format 3"):
    return _database(data)
  if data.startswith(b"\x1f\x8b"):
    return _gzipped(path, data)
  if data.startswith(b"PK\3\4"):
    return _zipped(data)
  kind = path.rpartition(".")[2].lower()
  if kind in _SCRIPTS:
    return _script(path, data)
  return _BY_SUFFIX.get(kind, _text)(data)


# Text


def _text(data: bytes) -> Edits:
  """Every character counts but blanks."""
  return _within(data, r".+")


def _within(data: bytes, counts: str) -> Edits:
  """Edits of the lines, or parts of lines, that match `counts`."""
  text = data.decode(errors="surrogateescape")
  spots = [m for m in re.finditer(counts, text) if m.group().strip()]

  def at(start: int, end: int, new: str) -> bytes:
    return (text[:start] + new + text[end:]).encode(errors="surrogateescape")

  for name, spot in _three(spots):
    number = re.search(r"(?<![\d.])\d+", spot.group())
    if number:
      start = spot.start() + number.start()
      digit = str((int(text[start]) + 5) % 10)
      yield f"a digit of the {name}", at(start, start + 1, digit)
      yield f"a digit more in the {name}", at(start, start, "1")
      digit = str((int(text[start]) + 1) % 10)
      yield f"the next digit in the {name}", at(start, start + 1, digit)
    word = re.search(r"[A-Za-z]{2,}", spot.group())
    if word:
      start = spot.start() + word.start()
      other = "q" if text[start] != "q" else "z"
      yield f"a letter of the {name}", at(start, start + 1, other)
  if counts == ".+":
    yield "a word before", b"q " + data
    yield "a sign before", b"-1" + data
    yield "a line after", data.rstrip(b"\n") + b"\nq 7\n"
    for name, spot in _three(spots):
      line = text[spot.start() : spot.end() + 1]
      yield f"the {name} lost", at(spot.start(), spot.end() + 1, "")
      twice = line if line.endswith("\n") else f"\n{line}"
      yield f"the {name} twice", at(spot.end() + 1, spot.end() + 1, twice)
    if spots:
      half = spots[len(spots) // 2].start()
      yield "cut in half", at(half, len(text), "")


def _three(found: list) -> list[tuple[str, Any]]:
  """The last, the middle and the first."""
  if not found:
    return []
  return [
      ("last", found[-1]),
      ("middle one", found[len(found) // 2]),
      ("first", found[0]),
  ]


def _inside(counts: str, block: str) -> Callable[[bytes], Edits]:
  """Edits of what matches `counts`, and of whole blocks: a record lost, or twice."""

  def edit(data: bytes) -> Edits:
    yield from _within(data, counts)
    text = data.decode(errors="surrogateescape")
    blocks = list(re.finditer(block, text, re.DOTALL))
    for name, spot in _three(blocks):
      for what, new in ((f"the {name} record lost", ""), ("twice", spot.group() * 2)):
        if what == "twice":
          what = f"the {name} record twice"
        changed = text[: spot.start()] + new + text[spot.end() :]
        yield what, changed.encode(errors="surrogateescape")

  return edit


_markup = _inside(r"(?<=>)[^<>]+(?=<)", r"<(tr|record)\b[^>]*>.*?</\1>\s*")
_calendar = _inside(
    r"(?<=SUMMARY:).+|(?<=DTSTART;VALUE=DATE:).+|(?<=DTSTART:).+",
    r"BEGIN:VEVENT.*?END:VEVENT\r?\n",
)
_cards = _inside(r"(?m)(?<=^FN:).+|(?<=^NOTE:).+", r"BEGIN:VCARD.*?END:VCARD\r?\n")
_statements = _inside(
    r"(?i)(?<=values)[^;]+", r"(?im)^insert[^;]*?(?:\([^()]*\)|;)[^\n;]*;?\n"
)


def _script(path: str, data: bytes) -> Edits:
  """Edits that surely change what a program does."""
  shebang, newline, rest = data.partition(b"\n")
  if not shebang.startswith(b"#!"):
    shebang, newline, rest = b"", b"", data
  yield "a line that can't be read", shebang + newline + b")(\n" + rest
  yield "only its beginning", shebang + newline + rest[: len(rest) // 3] + b"\n)(\n"
  yield "all but a comment lost", shebang + newline + b"# nothing\n"
  at_once = b"raise SystemExit(%d)\n" if path.endswith(".py") else b"exit %d\n"
  for code in (0, 7) if path.endswith((".py", ".sh")) else ():
    yield f"an end at once, {code}", shebang + newline + at_once % code + rest


# JSON


def _json(data: bytes) -> Edits:
  value = json.loads(data)
  for what, new in _other_values(value):
    yield what, json.dumps(new, indent=2).encode() + b"\n"


def _json_lines(data: bytes) -> Edits:
  rows = [json.loads(line) for line in data.decode().split("\n") if line.strip()]
  for what, new in _other_values(rows):
    if isinstance(new, list):
      yield what, "".join(json.dumps(row) + "\n" for row in new).encode()


def _other_values(value: Any) -> Iterator[tuple[str, Any]]:
  """Copies of a JSON value, each with one thing in it changed."""
  places = list(_places(value))
  leaves = [p for p in places if not isinstance(_at(value, p), (dict, list))]
  holders = [p for p in places if isinstance(_at(value, p), (dict, list))]
  for name, place in _three(leaves):
    yield f"the {name} value", _with(value, place, lambda old: _other(old))
    yield f"the {name} value null", _with(value, place, lambda old: None)
  for name, place in _three([p for p in holders if _at(value, p)]):
    held = _at(value, place)
    if isinstance(held, list):
      yield f"an item of the {name} list lost", _with(value, place, lambda x: x[:-1])
      twice = _with(value, place, lambda x: [*x, x[-1]])
      yield f"an item of the {name} list twice", twice
    else:
      key = list(held)[-1]
      yield f"{key} lost", _with(value, place, lambda x, k=key: _without(x, k))
      yield (
          f"{key} renamed",
          _with(value, place, lambda x, k=key: {**_without(x, k), f"{k}_": x[k]}),
      )


def _without(held: dict, key: str) -> dict:
  return {k: v for k, v in held.items() if k != key}


def _places(value: Any, here: tuple = ()) -> Iterator[tuple]:
  yield here
  items = value.items() if isinstance(value, dict) else ()
  if isinstance(value, list):
    items = enumerate(value)
  for key, item in items:
    yield from _places(item, (*here, key))


def _at(value: Any, place: tuple) -> Any:
  for key in place:
    value = value[key]
  return value


def _with(value: Any, place: tuple, change: Callable[[Any], Any]) -> Any:
  if not place:
    return change(value)
  copy = dict(value) if isinstance(value, dict) else list(value)
  copy[place[0]] = _with(value[place[0]], place[1:], change)
  return copy


def _other(old: Any) -> Any:
  if isinstance(old, bool):
    return not old
  if isinstance(old, (int, float)):
    return old + 5
  if isinstance(old, str):
    number = re.fullmatch(r"-?\d+(\.\d+)?", old)
    return f"1{old}" if number and old[0] != "-" else f"{old}q"
  return 7


# Binary kinds


def _database(data: bytes) -> Edits:
  def opened() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(data)
    return connection

  def changed(statement: str) -> bytes:
    with contextlib.closing(opened()) as connection:
      connection.execute(statement)
      connection.commit()
      return connection.serialize()

  for table, columns, filled in _tables(opened()):
    for end in ("max", "min") if filled else ():
      row = f'rowid = (select {end}(rowid) from "{table}")'
      for name, kind in (columns[-1], columns[0]):
        more = "+ 5" if kind.startswith(("int", "real", "num")) else "|| 'q'"
        update = f'update or replace "{table}" set "{name}" = "{name}" {more}'
        yield f"{table}.{name} of the {end} row", changed(f"{update} where {row}")
      delete = f'delete from "{table}" where {row}'
      yield f"the {end} row of {table} lost", changed(delete)
    yield f"no rows in {table}", changed(f'delete from "{table}"')
    yield f"{table} renamed", changed(f'alter table "{table}" rename to "{table}_"')


def _tables(connection: sqlite3.Connection) -> list[tuple[str, list, bool]]:
  """Name, columns with their kinds, and whether there are rows, of each table."""
  with contextlib.closing(connection):
    names = connection.execute("select name from sqlite_master where type = 'table'")
    found = []
    for (name,) in names.fetchall():
      if not name.startswith("sqlite_"):
        described = connection.execute(f'pragma table_info("{name}")').fetchall()
        columns = [(column[1], column[2].lower()) for column in described]
        count = connection.execute(f'select count(*) from "{name}"').fetchone()[0]
        found.append((name, columns, count > 0))
    return found


def _gzipped(path: str, data: bytes) -> Edits:
  with gzip.open(io.BytesIO(data)) as stream:
    inner = stream.read(_MOST_BYTES)
  name = path.removesuffix(".gz")
  if name.endswith(".tar") or path.endswith(".tgz") or inner[257:262] == b"ustar":
    for what, new in _tarred(inner):
      yield what, gzip.compress(new, mtime=0)
    return
  for what, new in edits(name, inner):
    yield what, gzip.compress(new, mtime=0)


def _tarred(data: bytes) -> Edits:
  with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
    files = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}

  def packed(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
      for name, content in members.items():
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()

  for what, members in _other_members(files):
    yield what, packed(members)


def _zipped(data: bytes) -> Edits:
  with zipfile.ZipFile(io.BytesIO(data)) as archive:
    infos = [i for i in archive.infolist() if not i.is_dir()]
    if sum(i.file_size for i in infos) > _MOST_BYTES:
      raise ValueError("too large")
    files = {i.filename: archive.read(i) for i in infos}

  def packed(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
      for name, content in members.items():
        archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()

  for what, members in _other_members(files):
    yield what, packed(members)


def _other_members(files: dict[str, bytes]) -> Iterator[tuple[str, dict[str, bytes]]]:
  """An archive's files with one of them changed, lost, renamed or added."""
  for name, member in _three(sorted(files)):
    rest = {k: v for k, v in files.items() if k != member}
    for what, new in edits(member, files[member])[:2]:
      yield f"{name} member: {what}", {**rest, member: new}
    yield f"the {name} member lost", rest
    folder, _, base = member.rpartition("/")
    renamed = f"{folder}/other-{base}" if folder else f"other-{base}"
    yield f"the {name} member renamed", {**rest, renamed: files[member]}
  yield "a member more", {**files, "more.txt": b"more\n"}


_BY_SUFFIX: dict[str, Callable[[bytes], Edits]] = {
    "json": _json, "jsonl": _json_lines, "ndjson": _json_lines, "ipynb": _json,
    "xml": _markup, "html": _markup, "htm": _markup, "svg": _markup,
    "ics": _calendar, "vcf": _cards, "sql": _statements,
}  # fmt: skip
_SCRIPTS = ("py", "sh", "js")
