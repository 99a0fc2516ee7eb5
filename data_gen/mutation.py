"""Makes a right result wrong, to see that the checks notice.

Every file that the solution added or changed gets one other value: a digit,
a letter, a number in a database, a byte of a file in an archive.
"""

from __future__ import annotations

import gzip
import io
import re
import sqlite3
import tarfile
import zlib

from sandbox.backends import Sandbox


async def spoil_results(sandbox: Sandbox) -> None:
  """Spoils every file that was added or changed since `sandbox` started."""
  for path, change in (await sandbox.diff()).items():
    if change != "removed":
      await sandbox.write(path, spoil(await sandbox.read(path)))


def spoil(data: bytes) -> bytes:
  """`data` of the same format with one value changed."""
  try:
    if data[:2] == b"\x1f\x8b":
      return _spoil_archive(data)
    if data.startswith(b"SQLite format 3"):
      return _spoil_database(data)
  except (OSError, EOFError, zlib.error, tarfile.TarError, sqlite3.Error):
    pass  # damaged, or compressed but no tar: any other bytes will do
  return _spoil_text(data.decode(errors="replace")).encode()


def _spoil_text(text: str) -> str:
  found = list(re.finditer(r"\d", text)) or list(re.finditer(r"[A-Za-z]", text))
  if not found:
    return text + "x"
  at, old = found[-1].start(), found[-1].group()
  # A digit well away from the old one, so that no tolerance hides it.
  new = str((int(old) + 5) % 10) if old.isdigit() else ("q" if old != "q" else "z")
  return text[:at] + new + text[at + 1 :]


def _spoil_archive(data: bytes) -> bytes:
  buffer = io.BytesIO()
  with (
      tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as old,
      tarfile.open(fileobj=buffer, mode="w") as new,
  ):
    for member in old:
      content = old.extractfile(member).read() if member.isfile() else b""
      if member.isfile():
        content = _spoil_text(content.decode(errors="replace")).encode()
        member.size = len(content)
      new.addfile(member, io.BytesIO(content))
  return gzip.compress(buffer.getvalue())


def _spoil_database(data: bytes) -> bytes:
  connection = sqlite3.connect(":memory:")
  connection.deserialize(data)
  tables = "select name from sqlite_master where type = 'table'"
  for (table,) in connection.execute(tables).fetchall():
    column = connection.execute(f'pragma table_info("{table}")').fetchall()[-1][1]
    connection.execute(f'update "{table}" set "{column}" = "{column}" || 1')
  connection.commit()
  return connection.serialize()
