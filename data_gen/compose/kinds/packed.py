"""Kinds that one reads with a program: databases, archives, pictures."""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib

from data_gen.compose.kinds.kind import (
    Files,
    Kind,
    encodable,
    one_file,
    records,
    title,
)
from data_gen.compose.kinds.text import delimited
from data_gen.compose.table import Table
from data_gen.packing import stored, tar_gz, zipped

_ROWS_A_MEMBER = 12
_SIDE = 12  # of a picture, in pixels
_SQLITE_VERSION = 3_040_001
_PACKED_AT = 1_767_225_600  # 2026-01-01


def _sqlite(table: Table, name: str) -> bytes:
  types = {"integer": "integer", "money": "real"}
  columns = ", ".join(
      f'"{column.name}" {types.get(column.type, "text")}' for column in table.columns
  )
  connection = sqlite3.connect(":memory:")
  connection.execute("pragma page_size = 4096")
  connection.execute(f'create table "{name}" ({columns})')
  marks = ", ".join("?" * len(table.columns))
  connection.executemany(f'insert into "{name}" values ({marks})', table.cells())
  connection.commit()
  data = connection.serialize()
  connection.close()
  # The writer's version, which no reader looks at.
  return data[:96] + struct.pack(">I", _SQLITE_VERSION) + data[100:]


def _pieces(table: Table) -> list[Table]:
  return [
      table.with_rows(table.rows[at : at + _ROWS_A_MEMBER])
      for at in range(0, max(len(table.rows), 1), _ROWS_A_MEMBER)
  ]


def _zip(table: Table, name: str) -> bytes:
  return zipped(
      {
          f"{name}-{number:04d}.csv": delimited(piece, ",").encode()
          for number, piece in enumerate(_pieces(table), 1)
      }
  )


def _tar(table: Table, name: str) -> bytes:
  texts = {
      f"{name}/{number:04d}.json": json.dumps(
          records(piece), indent=1, ensure_ascii=False
      )
      + "\n"
      for number, piece in enumerate(_pieces(table), 1)
  }
  return tar_gz({path: text.encode() for path, text in texts.items()}, _PACKED_AT)


def _pngs(table: Table, source: str) -> Files:
  """A picture a record: its fields in tEXt chunks, its date in EXIF as well."""
  dates = table.of_type("date")
  name = title(source)
  return {
      f"{source}/{name}-{number:04d}.png": _png(record, dates, number)
      for number, record in enumerate(records(table), 1)
  }


def _png(record: dict[str, str], dates: list[str], number: int) -> bytes:
  chunks = [(b"IHDR", struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 0, 0, 0, 0))]
  for key, value in record.items():
    chunks.append((b"tEXt", key.encode() + b"\0" + value.encode("latin-1")))
  if dates:
    # TIFF: one entry, DateTime (0x0132), 20 characters at offset 26.
    taken = record[dates[0]].replace("-", ":") + " 08:00:00"
    entry = struct.pack(">HHHIII", 1, 0x0132, 2, len(taken) + 1, 26, 0)
    head = b"MM\0*" + struct.pack(">I", 8)
    chunks.append((b"eXIf", head + entry + taken.encode() + b"\0"))
  shades = bytes((7 * number + 9 * at) % 256 for at in range(_SIDE))
  chunks += [(b"IDAT", stored((b"\0" + shades) * _SIDE)), (b"IEND", b"")]
  return b"\x89PNG\r\n\x1a\n" + b"".join(
      struct.pack(">I", len(data)) + kind + data
      + struct.pack(">I", zlib.crc32(kind + data))
      for kind, data in chunks
  )  # fmt: skip


PACKED = (
    Kind(
        "sqlite", ".db", "SQLite database", one_file(_sqlite),
        'import sqlite3\n'
        'db = sqlite3.connect("file:{path}?mode=ro", uri=True)\n'
        'name = db.execute("select name from sqlite_master").fetchone()[0]\n'
        'found = db.execute(f\'select * from "{{name}}"\')\n'
        'names = [c[0] for c in found.description]\n'
        'text = lambda v: f"{{v:.2f}}" if isinstance(v, float) else str(v)\n'
        'rows = [{{n: text(v) for n, v in zip(names, r)}} for r in found]',
        look='python3 -c \'import sqlite3; db = sqlite3.connect("{path}");'
        ' print(*db.execute("select sql from sqlite_master"))\'',
        atomics=("database query",),
    ),
    Kind(
        "zip", ".zip", "ZIP archive of CSV files", one_file(_zip),
        'import csv, io, zipfile\n'
        'archive, rows = zipfile.ZipFile("{path}"), []\n'
        'for name in sorted(archive.namelist()):\n'
        '  text = archive.read(name).decode("utf-8")\n'
        '  rows += csv.DictReader(io.StringIO(text, newline=""))',
        look="python3 -m zipfile -l {path}", atomics=("archive reading",),
    ),
    Kind(
        "tar", ".tar.gz", "compressed tar archive of JSON files", one_file(_tar),
        'import tarfile\n'
        'archive, rows = tarfile.open("{path}"), []\n'
        'for name in sorted(archive.getnames()):\n'
        '  rows += json.load(archive.extractfile(name))',
        look="tar tzf {path}", atomics=("archive reading",),
    ),
    Kind(
        "png", "", "folder of PNG pictures", _pngs,
        'import glob, struct\n'
        'rows = []\n'
        'for name in sorted(glob.glob("{path}/*.png")):\n'
        '  data, at, row = open(name, "rb").read(), 8, {{}}\n'
        '  while at < len(data):\n'
        '    size, kind = struct.unpack(">I4s", data[at : at + 8])\n'
        '    if kind == b"tEXt":\n'
        '      key, value = data[at + 8 : at + 8 + size].split(b"\\0")\n'
        '      row[key.decode()] = value.decode("latin-1")\n'
        '    at += size + 12\n'
        '  rows.append(row)',
        look="ls {path}", fits=encodable("latin-1"),
        said="The records are in the text chunks of the pictures.",
    ),
)  # fmt: skip
