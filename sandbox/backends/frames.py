"""Frames between a controller and the server in a sandbox; server.c is the other end.

A frame is `!IBBHQ` (id, operation, flags, number of fields, bytes that follow),
then its fields, each its length in 4 bytes and its bytes; numbers are 8 bytes.
An answer has its request's id; what the server says by itself has operations
from 20 on, whose id is a connection's number. An answer may come in parts: all
but the last are flagged MORE.
"""

from __future__ import annotations

import enum
import struct

HEADER = struct.Struct("!IBBHQ")
MORE, ERROR = 1, 2
CHUNK = 1 << 20  # of a field; a frame of some more is refused

_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!q")


class Op(enum.IntEnum):
  """What a frame is about; the numbers are server.c's."""

  READY = 0
  EXEC = 1
  SPAWN = 2
  POLL = 3
  SEND = 4
  KILL = 5
  READ = 6
  WRITE = 7
  LIST = 8
  PROCESSES = 9
  QUIET = 10
  PACK = 11
  UNPACK = 12
  CANCEL = 13
  OPENED = 20
  DATA = 21
  ACK = 22
  END = 23
  CLOSED = 24
  REPORTED = 25


def pack(request: int, op: Op, *fields: bytes | memoryview | int) -> bytes:
  """A frame for the server."""
  parts: list[bytes | memoryview] = []
  size = 0
  for field in fields:
    data = _NUMBER.pack(field) if isinstance(field, int) else field
    parts += [_LENGTH.pack(len(data)), data]
    size += 4 + len(data)
  return b"".join([HEADER.pack(request, op, 0, len(fields), size), *parts])


def fields(body: bytes, count: int) -> list[bytes]:
  """The fields of a frame's body."""
  found, at = [], 0
  for _ in range(count):
    (size,) = _LENGTH.unpack_from(body, at)
    at += 4
    found.append(body[at : at + size])
    at += size
  return found


def number(field: bytes) -> int:
  """A field that is a number."""
  return _NUMBER.unpack(field)[0]
