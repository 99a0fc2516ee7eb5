"""Kinds that are one text file: tables, trees, settings and logs."""

from __future__ import annotations

import csv
import html
import io
import json
from xml.sax.saxutils import escape

from data_gen.compose.kinds.kind import Kind, one_file, records
from data_gen.compose.table import Table


def delimited(table: Table, delimiter: str) -> str:
  out = io.StringIO()
  writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
  writer.writerows([table.names, *table.cells()])
  return out.getvalue()


def quoted(text: str) -> str:
  """A string of JSON, YAML, TOML and our logs."""
  return json.dumps(text, ensure_ascii=False)


def _csv(table: Table, name: str) -> str:
  return delimited(table, ",")


def _tsv(table: Table, name: str) -> str:
  return delimited(table, "\t")


def _json(table: Table, name: str) -> str:
  return json.dumps({name: records(table)}, indent=1, ensure_ascii=False) + "\n"


def _jsonl(table: Table, name: str) -> str:
  return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records(table))


def _markdown(table: Table, name: str) -> str:
  cells = [[c.replace("|", "\\|") for c in line] for line in table.cells()]
  lines = [table.names, ["---"] * len(table.names), *cells]
  body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
  return f"# {name}\n\n{body}\n"


def _xml(table: Table, name: str) -> str:
  rows = "\n".join(
      "  <record>"
      + "".join(f"<{k}>{escape(v)}</{k}>" for k, v in record.items())
      + "</record>"
      for record in records(table)
  )
  return f'<?xml version="1.0" encoding="UTF-8"?>\n<{name}>\n{rows}\n</{name}>\n'


def _html(table: Table, name: str) -> str:
  def line(tag: str, cells: list[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

  body = "\n".join([line("th", table.names), *(line("td", c) for c in table.cells())])
  return (
      f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{name}</title></head>'
      f"<body><h1>{name}</h1>\n<table>\n{body}\n</table></body></html>\n"
  )


def _yaml(table: Table, name: str) -> str:
  lines = [f"{name}:"]
  for record in records(table):
    for number, (key, value) in enumerate(record.items()):
      lines.append(f"{'  - ' if number == 0 else '    '}{key}: {quoted(value)}")
  return "\n".join(lines) + "\n"


def _toml(table: Table, name: str) -> str:
  plain = {c.name for c in table.columns if c.type in ("integer", "money", "date")}
  blocks = (
      "\n".join(
          f"{k} = {v if k in plain and v else quoted(v)}" for k, v in record.items()
      )
      for record in records(table)
  )
  return "\n".join(f"[[{name}]]\n{block}\n" for block in blocks)


def _ini(table: Table, name: str) -> str:
  blocks = (
      f"[{name} {number}]\n" + "".join(f"{k} = {v}\n" for k, v in record.items())
      for number, record in enumerate(records(table), 1)
  )
  return "\n".join(blocks)


def _log(table: Table, name: str) -> str:
  lines = (
      " ".join(f"{key}={quoted(value)}" for key, value in record.items())
      for record in records(table)
  )
  return "".join(f"INFO {name} {line}\n" for line in lines)


TEXTS = (
    Kind(
        "csv", ".csv", "CSV file", one_file(_csv),
        'import csv\n'
        'rows = list(csv.DictReader(open("{path}", newline="", encoding="utf-8")))',
    ),
    Kind(
        "tsv", ".tsv", "tab-separated file", one_file(_tsv),
        'import csv\n'
        'file = open("{path}", newline="", encoding="utf-8")\n'
        'rows = list(csv.DictReader(file, delimiter="\\t"))',
    ),
    Kind(
        "json", ".json", "JSON file", one_file(_json),
        'rows = next(iter(json.load(open("{path}", encoding="utf-8")).values()))',
    ),
    Kind(
        "jsonl", ".jsonl", "JSON Lines file", one_file(_jsonl),
        'file = open("{path}", encoding="utf-8")\n'
        'rows = [json.loads(line) for line in file if line.strip()]',
    ),
    Kind(
        "markdown", ".md", "Markdown table", one_file(_markdown),
        'import re\n'
        'lines = [l.strip() for l in open("{path}", encoding="utf-8")]\n'
        'lines = [re.split(r"(?<!\\\\)\\|", l)[1:-1] for l in lines if l[:1] == "|"]\n'
        'cells = [[c.strip().replace("\\\\|", "|") for c in l] for l in lines]\n'
        'rows = [dict(zip(cells[0], c)) for c in cells[2:]]',
    ),
    Kind(
        "xml", ".xml", "XML file", one_file(_xml),
        'import xml.etree.ElementTree as ET\n'
        'root = ET.parse("{path}").getroot()\n'
        'rows = [{{e.tag: e.text or "" for e in r}} for r in root]',
    ),
    Kind(
        "html", ".html", "HTML page", one_file(_html),
        'import html, re\n'
        'page = open("{path}", encoding="utf-8").read()\n'
        'lines = re.findall("<tr>(.*?)</tr>", page, re.S)\n'
        'cells = [re.findall("<t[hd]>(.*?)</t[hd]>", l, re.S) for l in lines]\n'
        'cells = [[html.unescape(c) for c in l] for l in cells]\n'
        'rows = [dict(zip(cells[0], c)) for c in cells[1:]]',
    ),
    Kind(
        "yaml", ".yaml", "YAML file", one_file(_yaml),
        'rows = []\n'
        'for line in open("{path}", encoding="utf-8"):\n'
        '  if line.startswith("  - "):\n'
        '    rows.append({{}})\n'
        '  if line.startswith("  "):\n'
        '    key, value = line[4:].split(": ", 1)\n'
        '    rows[-1][key] = json.loads(value)',
    ),
    Kind(
        "toml", ".toml", "TOML file", one_file(_toml),
        'rows = []\n'
        'for line in open("{path}", encoding="utf-8"):\n'
        '  if line.startswith("[["):\n'
        '    rows.append({{}})\n'
        '  elif " = " in line:\n'
        '    key, value = line.rstrip("\\n").split(" = ", 1)\n'
        '    rows[-1][key] = json.loads(value) if value[0] == \'"\' else value',
    ),
    Kind(
        "ini", ".ini", "INI file", one_file(_ini),
        'import configparser\n'
        'file = configparser.RawConfigParser(delimiters=("=",))\n'
        'file.optionxform = str\n'
        'file.read("{path}", encoding="utf-8")\n'
        'rows = [dict(file[name]) for name in file.sections()]',
    ),
    Kind(
        "log", ".log", "log file", one_file(_log),
        'import re\n'
        'pair = r\'(\\w+)=("(?:[^"\\\\]|\\\\.)*")\'\n'
        'pairs = [re.findall(pair, l) for l in open("{path}", encoding="utf-8")]\n'
        'rows = [{{k: json.loads(v) for k, v in p}} for p in pairs if p]',
        atomics=("log reading",),
    ),
)  # fmt: skip
