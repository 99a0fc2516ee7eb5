"""Packed forms whose bytes depend on what is in them alone.

Nothing is compressed: zlib and its kin give other bytes from one version to the
next. No clock, no owner and no machine is in them; members stand in the order
given.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
import zlib


def stored(data: bytes) -> bytes:
  """`data` in the form of zlib (RFC 1950)."""
  return b"\x78\x01" + _blocks(data) + struct.pack(">I", zlib.adler32(data))


def stored_gzip(data: bytes) -> bytes:
  """`data` in the form of gzip (RFC 1952)."""
  header = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
  return header + _blocks(data) + struct.pack("<II", zlib.crc32(data), len(data))


def _blocks(data: bytes) -> bytes:
  """Blocks of deflate that are not compressed (RFC 1951, section 3.2.4)."""
  pieces = [data[at : at + 0xFFFF] for at in range(0, len(data), 0xFFFF)] or [b""]
  blocks = []
  for number, piece in enumerate(pieces, 1):
    last, size = number == len(pieces), len(piece)
    blocks.append(struct.pack("<BHH", last, size, size ^ 0xFFFF) + piece)
  return b"".join(blocks)


def zipped(members: dict[str, bytes]) -> bytes:
  """A ZIP of these members by path."""
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w") as archive:
    for name, data in members.items():
      info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
      info.create_system, info.external_attr = 3, 0o644 << 16
      archive.writestr(info, data, zipfile.ZIP_STORED)
  return out.getvalue()


def tar_gz(members: dict[str, bytes], mtime: int = 0) -> bytes:
  """A gzipped tar of these members by path, all of the time `mtime`."""
  out = io.BytesIO()
  with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
    for name, data in members.items():
      info = tarfile.TarInfo(name)
      info.size, info.mtime = len(data), mtime
      archive.addfile(info, io.BytesIO(data))
  return stored_gzip(out.getvalue())
