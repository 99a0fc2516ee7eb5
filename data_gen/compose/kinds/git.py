"""A bare git repository whose log is the records, one commit a record.

Written here, object by object, into one pack: git itself would put clocks,
hooks and its version's habits into it. Everything in it hangs from `main`; it
has no remote, no reflog, no index. Bare, so that reading it leaves no trace.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import struct
import zlib
from collections import Counter

from data_gen.compose.kinds.kind import (
    Files,
    Kind,
    by_date,
    dated,
    days,
    records,
    title,
)
from data_gen.compose.kinds.mail import fields
from data_gen.compose.table import Table
from data_gen.packing import stored

_TYPES = {"commit": 1, "tree": 2, "blob": 3}
_CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"


class _Pack:
  """The objects of a repository, in the order they came."""

  def __init__(self) -> None:
    self._entries: dict[bytes, bytes] = {}

  def add(self, kind: str, body: bytes) -> bytes:
    """Adds an object, once; its 20-byte name."""
    name = hashlib.sha1(f"{kind} {len(body)}\0".encode() + body).digest()
    if name not in self._entries:
      size = len(body)
      first, size = _TYPES[kind] << 4 | size & 15, size >> 4
      head = bytearray()
      while size:  # the length goes on in 7 bits a byte
        head.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
      head.append(first)
      self._entries[name] = bytes(head) + stored(body)
    return name

  def files(self) -> Files:
    """The pack and its index, version 2 of both (gitformat-pack)."""
    pack, where = bytearray(b"PACK" + struct.pack(">II", 2, len(self._entries))), {}
    for name, entry in self._entries.items():
      where[name] = len(pack)
      pack += entry
    pack += hashlib.sha1(pack).digest()
    names = sorted(self._entries)
    first = Counter(name[0] for name in names)
    fan = itertools.accumulate(first[byte] for byte in range(256))
    index = b"\xfftOc" + struct.pack(">257I", 2, *fan) + b"".join(names)
    index += b"".join(struct.pack(">I", zlib.crc32(self._entries[n])) for n in names)
    index += b"".join(struct.pack(">I", where[n]) for n in names) + pack[-20:]
    index += hashlib.sha1(index).digest()
    stem = f"objects/pack/pack-{pack[-20:].hex()}"
    return {f"{stem}.pack": bytes(pack), f"{stem}.idx": index}


def _git(table: Table, source: str) -> Files:
  table, name, pack, parent = by_date(table), title(source), _Pack(), b""
  for number, (record, day) in enumerate(zip(records(table), days(table)), 1):
    blob = pack.add("blob", fields(record).encode())
    tree = pack.add("tree", b"100644 latest.txt\0" + blob)
    midnight = datetime.datetime.combine(day, datetime.time(), datetime.timezone.utc)
    when = int(midnight.timestamp()) + 60 * number
    who = f"{name} <{name}@desk.example> {when} +0000"
    lines = [
        f"tree {tree.hex()}",
        *([f"parent {parent.hex()}"] if parent else []),
        f"author {who}",
        f"committer {who}",
        "",
        f"{name} {number}",
        "",
        fields(record),
    ]
    parent = pack.add("commit", "\n".join(lines).encode())
  files = {
      "HEAD": b"ref: refs/heads/main\n",
      "config": _CONFIG,
      "refs/heads/main": parent.hex().encode() + b"\n",
      **pack.files(),
  }
  return {f"{source}/{path}": data for path, data in files.items()}


GIT = Kind(
    "git", ".git", "bare git repository", _git,
    'import subprocess\n'
    'log = ["git", "-C", "{path}", "log", "--reverse", "--format=%B%x00"]\n'
    'texts = subprocess.run(log, capture_output=True, check=True).stdout.decode()\n'
    'rows = [dict(l.split(": ", 1) for l in t.splitlines() if ": " in l)'
    ' for t in texts.split("\\0") if t.strip()]',
    look="git -C {path} log -n 3", fits=dated, order=by_date,
    said="Each commit's message is a record.", atomics=("version control",),
)  # fmt: skip
