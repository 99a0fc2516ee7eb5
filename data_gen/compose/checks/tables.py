"""Tables as an agent hands them over, in every form that a sink has.

Part of check.py (see `checker`): standard library only. Starting is most of what
a check costs, so what reads one form is imported with it.
"""

import io
import json
import math
import re
from pathlib import Path

from data_gen.compose.checks.files import MAX_BYTES, only_once, read_bytes
from data_gen.compose.checks.files import read_json, read_text

MOST_STEPS = 200  # of a thousand instructions of SQLite each


def judge_table(root: Path, spec: dict) -> dict[str, bool]:
  columns, rows = READERS[spec["kind"]](root / spec["path"], spec)
  want = spec["rows"]
  same = _alike(sorted(rows), sorted(want))
  return {
      "right": same,
      "columns": same and columns == spec["columns"],
      "order": same and (not spec["ordered"] or _alike(rows, want)),
  }


def judge_report(root: Path, spec: dict) -> dict[str, bool]:
  """A title, a bullet a row and the total."""
  lines = [line.strip() for line in read_text(root / spec["path"]).split("\n")]
  lines = [line for line in lines if line]
  bullets = [line[2:].rpartition(": ") for line in lines if line[:2] in ("- ", "* ")]
  rows, want = [[a, b] for a, _, b in bullets], spec["rows"]
  same = _alike(sorted(rows), sorted(want))
  total = sum(float(value) for _, value in want)
  stem = spec["path"].rpartition("/")[2].partition(".")[0]
  return {
      "right": same,
      "order": same and (not spec["ordered"] or _alike(rows, want)),
      "title": same and lines[0] == f"# {stem}" and len(lines) == len(want) + 2,
      "total": same
      and lines[-1].startswith("Total: ")
      and _near(float(lines[-1][7:]), total),
  }


def _alike(rows: list, want: list) -> bool:
  return len(rows) == len(want) and all(
      len(a) == len(b) and all(map(_same, a, b)) for a, b in zip(rows, want)
  )


def _same(a: str, b: str) -> bool:
  if a == b:
    return True
  try:
    return _near(float(a), float(b))
  except ValueError:
    return False


def _near(a: float, b: float) -> bool:
  return math.isclose(a, b, rel_tol=0, abs_tol=0.005)


def _delimited(path: Path, spec: dict) -> tuple[list, list]:
  import csv

  if spec["kind"] == "csv_gz":
    import gzip

    text = gzip.open(io.BytesIO(read_bytes(path))).read(MAX_BYTES).decode("utf-8")
  else:
    text = read_text(path)
  delimiter = {"tsv": "\t", "csv_semicolon": ";"}.get(spec["kind"], ",")
  header, *rows = [r for r in csv.reader(io.StringIO(text), delimiter=delimiter) if r]
  return header, rows


def _records(records: list, spec: dict) -> tuple[list, list]:
  """Mappings of one form as columns and rows."""
  columns = list(records[0]) if records else spec["columns"]
  if any(set(r) != set(spec["columns"]) for r in records):
    raise ValueError("other keys")
  return columns, [[str(r[c]) for c in spec["columns"]] for r in records]


def _json(path: Path, spec: dict) -> tuple[list, list]:
  return _records(read_json(read_text(path)), spec)


def _jsonl(path: Path, spec: dict) -> tuple[list, list]:
  lines = [line for line in read_text(path).split("\n") if line.strip()]
  return _records([read_json(line) for line in lines], spec)


def _json_map(path: Path, spec: dict) -> tuple[list, list]:
  found = read_json(read_text(path))
  if any(isinstance(v, (str, bool)) for v in found.values()):
    raise ValueError("not numbers")
  return spec["columns"], [[k, str(v)] for k, v in found.items()]


def _json_columns(path: Path, spec: dict) -> tuple[list, list]:
  found = read_json(read_text(path))
  lists = [found[name] for name in spec["columns"]]
  if len(found) != len(lists) or len({len(values) for values in lists}) != 1:
    raise ValueError("other columns")
  return list(found), [[str(v) for v in row] for row in zip(*lists)]


def _yaml(path: Path, spec: dict) -> tuple[list, list]:
  records = []
  for line in read_text(path).split("\n"):
    if not line.strip() or line.strip() in ("---", "..."):
      continue
    start, key, value = re.fullmatch(r"(\s*- +|\s+)(.+?): *(.*?)\s*", line).groups()
    if "-" in start:
      records.append([])
    records[-1].append((key.strip("\"'"), _scalar(value)))
  return _records(list(map(only_once, records)), spec)


def _scalar(value: str) -> str:
  if value[:1] == value[-1:] == "'":
    return value[1:-1].replace("''", "'")
  return json.loads(value) if value.startswith('"') else value


def _xml(path: Path, spec: dict) -> tuple[list, list]:
  import xml.etree.ElementTree as ET

  text = read_text(path)
  if "<!" in text.replace("<!--", ""):
    raise ValueError("no declarations")
  root = ET.fromstring(text)
  if root.tag != "records" or any(r.tag != "record" for r in root):
    raise ValueError("other elements")
  beside = (t for e in root.iter() for t in (e.tail, e.text if len(e) else ""))
  if any(t and t.strip() for t in beside):
    raise ValueError("text beside the elements")
  rows = ([(e.tag, (e.text or "").strip()) for e in r] for r in root)
  return _records(list(map(only_once, rows)), spec)


class _Cells:
  """The cells of each row of the tables, as an HTMLParser collects them; `strange`
  is other text but headings."""

  def __init__(self):
    super().__init__()
    self.rows, self.cell, self.tag, self.strange, self.tables = [], None, "", "", []

  def handle_starttag(self, tag, attributes):
    if tag == "tr":
      self.rows.append([])
    if tag in ("td", "th"):
      self.cell = ""
    if tag == "table":
      self.tables.append("start")
    self.tag = tag

  def handle_data(self, data):
    if self.cell is not None:
      self.cell += data
    elif self.tag not in ("title", "style", "caption", "h1", "h2"):
      self.strange += data.strip()

  def handle_endtag(self, tag):
    self.tag = ""
    if tag == "table":
      self.tables.append("end")
    if tag in ("td", "th"):
      self.rows[-1].append(self.cell.strip())
      self.cell = None


def _html(path: Path, spec: dict) -> tuple[list, list]:
  import html.parser

  cells = type("Cells", (_Cells, html.parser.HTMLParser), {})()
  cells.feed(read_text(path))
  cells.close()
  if cells.strange or cells.tables != ["start", "end"]:
    raise ValueError("more than a table")
  return cells.rows[0], cells.rows[1:]


def _markdown(path: Path, spec: dict) -> tuple[list, list]:
  lines = [line.strip() for line in read_text(path).splitlines() if line.strip()]
  if not all(line.startswith("|") for line in lines):
    raise ValueError("more than a table")
  cells = [[c.strip() for c in l.strip("|").split("|")] for l in lines]
  if not all(set(c) <= set("-: ") for c in cells[1]):
    raise ValueError("no rule below the header")
  return cells[0], cells[2:]


def _sentence(path: Path, spec: dict) -> tuple[list, list]:
  text = read_text(path).strip()
  if "\n" in text or not text.endswith("."):
    raise ValueError("no sentence")
  return spec["columns"], [part.split(": ") for part in text[:-1].split(", ")]


def _log(path: Path, spec: dict) -> tuple[list, list]:
  pair = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')
  lines = [line for line in read_text(path).split("\n") if line.strip()]
  if any(pair.sub("", line).strip() for line in lines):
    raise ValueError("more than pairs")
  found = [{k: json.loads(v) for k, v in pair.findall(line)} for line in lines]
  return _records(found, spec)


def _ini(path: Path, spec: dict) -> tuple[list, list]:
  import configparser

  parser = configparser.RawConfigParser()
  parser.optionxform = str
  parser.read_string(read_text(path))
  first = spec["columns"][0]
  found = [{first: name, **dict(parser.items(name))} for name in parser.sections()]
  return _records(found, spec)


def _sqlite(path: Path, spec: dict) -> tuple[list, list]:
  import sqlite3

  read_bytes(path)  # a plain file
  db = sqlite3.connect(f"file:{path.resolve()}?mode=ro&immutable=1", uri=True)
  return _rows_of(db, spec)


def _sql(path: Path, spec: dict) -> tuple[list, list]:
  import sqlite3

  db = sqlite3.connect(":memory:")
  _bound(db)
  allowed = {
      getattr(sqlite3, f"SQLITE_{name}")
      for name in "INSERT CREATE_TABLE READ SELECT UPDATE TRANSACTION".split()
  }
  db.set_authorizer(lambda action, *_: 0 if action in allowed else sqlite3.SQLITE_DENY)
  db.executescript(read_text(path))
  db.set_authorizer(None)
  return _rows_of(db, spec)


def _bound(db) -> None:
  left = iter(range(MOST_STEPS))
  db.set_progress_handler(lambda: next(left, None) is None, 1000)


def _rows_of(db, spec: dict) -> tuple[list, list]:
  """The one table of a database, as text; no view is ever run."""
  _bound(db)
  stem = spec["path"].rpartition("/")[2].partition(".")[0]
  kinds = db.execute("select type, name from sqlite_master").fetchmany(9)
  if kinds != [("table", stem)]:
    raise ValueError("other tables, or none")
  found = db.execute(f'select * from "{stem}" order by rowid')
  columns = [c[0] for c in found.description]
  rows = found.fetchmany(len(spec["rows"]) + 1)
  db.close()
  return columns, [[str(v) for v in row] for row in rows]


def _ics(path: Path, spec: dict) -> tuple[list, list]:
  rows = []
  for event in _components(path, "VEVENT"):
    day = event["DTSTART"]
    rows.append([event["SUMMARY"], f"{day[:4]}-{day[4:6]}-{day[6:]}"])
  return spec["columns"], rows


def _vcard(path: Path, spec: dict) -> tuple[list, list]:
  return spec["columns"], [[c["FN"], c["NOTE"]] for c in _components(path, "VCARD")]


def _components(path: Path, name: str) -> list[dict]:
  """The properties of each component of that name, without parameters."""
  found: list[list] = []
  outside, inside, key = [], False, ""
  for line in re.sub(r"\n[ \t]", "", read_text(path)).strip().split("\n"):
    key, colon, value = line.rstrip().partition(":")
    key, value = key.partition(";")[0], re.sub(r"\\(.)", r"\1", value)
    if not colon:
      raise ValueError("a line that is no property")
    if (key, value) in (("BEGIN", name), ("END", name)):
      if inside == (key == "BEGIN"):
        raise ValueError("a start in a component, or an end without a start")
      inside = key == "BEGIN"
      found += [[]] if inside else []
    else:
      (found[-1] if inside else outside).append((key, value))
  if key != "END" or inside:
    raise ValueError("it does not end as it should")
  only_once(outside)
  return list(map(only_once, found))


READERS = {
    "csv": _delimited, "tsv": _delimited, "csv_semicolon": _delimited,
    "csv_gz": _delimited,
    "json": _json, "jsonl": _jsonl, "json_map": _json_map,
    "json_columns": _json_columns, "yaml": _yaml, "xml": _xml, "html": _html,
    "markdown": _markdown,
    "sentence": _sentence, "log": _log, "ini": _ini, "sqlite": _sqlite, "sql": _sql,
    "ics": _ics, "vcard": _vcard,
}  # fmt: skip
