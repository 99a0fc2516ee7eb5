"""Wrong versions of what a solution committed to a git repository.

Works on the loose objects of a snapshot: a branch that was made or moved is
taken back, lost, or moved on to a commit with one thing changed.
"""

from __future__ import annotations

import hashlib
import re
import zlib

from data_gen.mutation.edits import edits
from sandbox.backends.base import Files

Change = dict[str, bytes | None]
_HEADS = re.compile(r"((?:.*/)?\.git)/refs/heads/.+")


def commits_remade(initial: Files, after: Files) -> list[list[tuple[str, Change]]]:
  """For each branch that was made or moved, wrong versions; paths of the files."""
  by_branch = []
  for path in sorted(after):
    heads = _HEADS.fullmatch(path)
    if heads and after[path] != initial.get(path):
      undone: tuple[str, Change] = (f"{path}: undone", {path: initial.get(path)})
      by_branch.append([*_remade(after, heads[1], path), undone])
  return by_branch


def _remade(files: Files, git: str, branch: str) -> list[tuple[str, Change]]:
  try:
    commit = _object(files, git, files[branch].decode().strip())
    head, _, message = commit.partition(b"\n\n")
    fields = [line for line in head.split(b"\n")]
    tree = next(f for f in fields if f.startswith(b"tree "))[5:].decode()
    entries = _entries(_object(files, git, tree))
  except (KeyError, ValueError, StopIteration, zlib.error):
    return []  # packed: then only taking it back is left
  found = []

  def add(what: str, objects: Files, tree: str, fields: list[bytes]) -> None:
    fields = [b"tree " + tree.encode() if f.startswith(b"tree ") else f for f in fields]
    name, new = _stored(git, b"commit", b"\n".join(fields) + b"\n\n" + message)
    moved = {branch: name.encode() + b"\n"}
    found.append((f"{branch}: {what}", {**objects, **new, **moved}))

  def with_entries(what: str, objects: Files, entries: list) -> None:
    data = b"".join(m + b" " + n + b"\0" + bytes.fromhex(i) for m, n, i in entries)
    name, new = _stored(git, b"tree", data)
    add(what, {**objects, **new}, name, fields)

  blobs = [e for e in entries if e[0] != b"40000"]
  for mode, name, blob in blobs[-1:] + blobs[:1]:
    others = [e for e in entries if e[1] != name]
    with_entries(f"{name.decode()} not in it", {}, others)
    try:
      what, data = edits(name.decode(), _object(files, git, blob))[0]
    except KeyError:
      continue
    made, objects = _stored(git, b"blob", data)
    with_entries(f"{name.decode()}: {what}", objects, [
        (mode, name, made) if e[1] == name else e for e in entries
    ])  # fmt: skip
  made, objects = _stored(git, b"blob", b"more\n")
  with_entries("a file more", objects, [*entries, (b"100644", b"zz-more.txt", made)])
  if [f for f in fields if f.startswith(b"parent ")]:
    orphan = [f for f in fields if not f.startswith(b"parent ")]
    add("no parents", {}, tree, orphan)
  return found


def _object(files: Files, git: str, name: str) -> bytes:
  data = zlib.decompress(files[f"{git}/objects/{name[:2]}/{name[2:]}"])
  return data.partition(b"\0")[2]


def _stored(git: str, kind: bytes, content: bytes) -> tuple[str, dict[str, bytes]]:
  data = kind + b" %d\0" % len(content) + content
  name = hashlib.sha1(data).hexdigest()
  return name, {f"{git}/objects/{name[:2]}/{name[2:]}": zlib.compress(data)}


def _entries(tree: bytes) -> list[tuple[bytes, bytes, str]]:
  found = []
  while tree:
    mode, _, rest = tree.partition(b" ")
    name, _, rest = rest.partition(b"\0")
    found.append((mode, name, rest[:20].hex()))
    tree = rest[20:]
  return found
