"""Kinds of record files: how one is written, looked at and loaded.

`write` renders a table; `load` is the Python that an agent would write to get
its rows, a list of dicts of text, from the file named `path`. The two are
separate ways: nothing of `write` runs in a solution. Bytes are the same for
the same table.
"""

from __future__ import annotations

import csv
import html
import io
import json
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from data_gen.compose.table import Table


@dataclass(frozen=True)
class Kind:
  """See the module's docstring.

  Attributes:
    called: what an instruction calls such a file.
    look: the command that shows it, with {path}; empty where `read` does.
  """

  name: str
  suffix: str
  called: str
  write: Callable[[Table, str], bytes]
  load: str
  look: str = ""


def _csv(table: Table, name: str) -> bytes:
  return _delimited(table, ",")


def _tsv(table: Table, name: str) -> bytes:
  return _delimited(table, "\t")


def _delimited(table: Table, delimiter: str) -> bytes:
  out = io.StringIO()
  writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
  writer.writerows([table.names, *table.cells()])
  return out.getvalue().encode()


def _records(table: Table) -> list[dict[str, str]]:
  return [dict(zip(table.names, cells)) for cells in table.cells()]


def _json(table: Table, name: str) -> bytes:
  return json.dumps({name: _records(table)}, indent=1).encode() + b"\n"


def _jsonl(table: Table, name: str) -> bytes:
  return "".join(json.dumps(r) + "\n" for r in _records(table)).encode()


def _markdown(table: Table, name: str) -> bytes:
  lines = [table.names, ["---"] * len(table.names), *table.cells()]
  body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
  return f"# {name}\n\n{body}\n".encode()


def _xml(table: Table, name: str) -> bytes:
  rows = "\n".join(
      "  <record>"
      + "".join(f"<{k}>{escape(v)}</{k}>" for k, v in record.items())
      + "</record>"
      for record in _records(table)
  )
  return f'<?xml version="1.0"?>\n<{name}>\n{rows}\n</{name}>\n'.encode()


def _html(table: Table, name: str) -> bytes:
  def line(tag: str, cells: list[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

  body = "\n".join([line("th", table.names), *(line("td", c) for c in table.cells())])
  return f"<html><body><h1>{name}</h1>\n<table>\n{body}\n</table></body></html>\n".encode()


def _yaml(table: Table, name: str) -> bytes:
  lines = [f"{name}:"]
  for record in _records(table):
    for number, (key, value) in enumerate(record.items()):
      lines.append(f"{'  - ' if number == 0 else '    '}{key}: {json.dumps(value)}")
  return ("\n".join(lines) + "\n").encode()


def _log(table: Table, name: str) -> bytes:
  lines = (
      " ".join(f"{key}={json.dumps(value)}" for key, value in record.items())
      for record in _records(table)
  )
  return "".join(f"INFO {name} {line}\n" for line in lines).encode()


def _sqlite(table: Table, name: str) -> bytes:
  types = {"integer": "integer", "money": "real"}
  columns = ", ".join(
      f'"{column.name}" {types.get(column.type, "text")}' for column in table.columns
  )
  with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "db"
    connection = sqlite3.connect(path)
    connection.execute(f'create table "{name}" ({columns})')
    marks = ", ".join("?" * len(table.columns))
    connection.executemany(f'insert into "{name}" values ({marks})', table.cells())
    connection.commit()
    connection.close()
    return path.read_bytes()


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "csv", ".csv", "CSV file", _csv,
            'import csv\nrows = list(csv.DictReader(open("{path}", newline="")))',
        ),
        Kind(
            "tsv", ".tsv", "tab-separated file", _tsv,
            'import csv\n'
            'rows = list(csv.DictReader(open("{path}", newline=""), delimiter="\\t"))',
        ),
        Kind(
            "json", ".json", "JSON file", _json,
            'rows = next(iter(json.load(open("{path}")).values()))',
        ),
        Kind(
            "jsonl", ".jsonl", "JSON Lines file", _jsonl,
            'rows = [json.loads(line) for line in open("{path}") if line.strip()]',
        ),
        Kind(
            "markdown", ".md", "Markdown table", _markdown,
            'lines = [l for l in open("{path}") if l.startswith("|")]\n'
            'cells = [[c.strip() for c in l.strip().strip("|").split("|")] for l in lines]\n'
            'rows = [dict(zip(cells[0], c)) for c in cells[2:]]',
        ),
        Kind(
            "xml", ".xml", "XML file", _xml,
            'import xml.etree.ElementTree as ET\n'
            'rows = [{{e.tag: e.text for e in r}} for r in ET.parse("{path}").getroot()]',
        ),
        Kind(
            "html", ".html", "HTML page", _html,
            'import html, re\n'
            'lines = re.findall("<tr>(.*?)</tr>", open("{path}").read(), re.S)\n'
            'cells = [[html.unescape(c) for c in re.findall("<t[hd]>(.*?)</t[hd]>", l)]'
            ' for l in lines]\n'
            'rows = [dict(zip(cells[0], c)) for c in cells[1:]]',
        ),
        Kind(
            "yaml", ".yaml", "YAML file", _yaml,
            'rows = []\n'
            'for line in open("{path}").read().splitlines()[1:]:\n'
            '  if line.startswith("  - "):\n'
            '    rows.append({{}})\n'
            '  key, value = line[4:].split(": ", 1)\n'
            '  rows[-1][key] = json.loads(value)',
        ),
        Kind(
            "log", ".log", "log file", _log,
            'import re\n'
            'pairs = [re.findall(r\'(\\w+)=("(?:[^"\\\\]|\\\\.)*")\', l)'
            ' for l in open("{path}")]\n'
            'rows = [{{k: json.loads(v) for k, v in p}} for p in pairs]',
        ),
        Kind(
            "sqlite", ".db", "SQLite database", _sqlite,
            'import sqlite3\n'
            'db = sqlite3.connect("file:{path}?mode=ro", uri=True)\n'
            'name = db.execute("select name from sqlite_master").fetchone()[0]\n'
            'found = db.execute(f"select * from {{name}}")\n'
            'names = [c[0] for c in found.description]\n'
            'kinds = [c[2] for c in db.execute(f"pragma table_info({{name}})")]\n'
            'text = lambda v, k: f"{{v:.2f}}" if k == "real" else str(v)\n'
            'rows = [{{n: text(v, k) for n, v, k in zip(names, r, kinds)}} for r in found]',
            look='python3 -c \'import sqlite3; db = sqlite3.connect("{path}");'
            ' print(*db.execute("select sql from sqlite_master"))\'',
        ),
    )
}  # fmt: skip
