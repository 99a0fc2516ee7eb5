"""Grades a workspace by expected.json; copied into a composed task as check.py.

Standard library only. A deliverable's `right` is the check that needs the
work: all rows, to the cell. The other checks of a deliverable (its columns,
its count, its order) and those beside it (inputs and strangers) count only
where that one holds, so that doing nothing, or something else, scores 0.
Anything that an agent may leave in a file's place is merely wrong.
"""

import configparser
import csv
import datetime
import gzip
import hashlib
import html.parser
import io
import json
import math
import os
import re
import sqlite3
import tarfile
import xml.etree.ElementTree as ET
import zipfile
import zlib
from pathlib import Path

EXPECTED = Path(__file__).resolve().parent / "expected.json"
MAX_BYTES = 8 << 20
MOST_STEPS = 200  # of a thousand instructions of SQLite each


def grade(
    workspace: str, final_message: str, transcript: list, services: list = []
) -> dict[str, float]:
  """Named values, 0.0 or 1.0, for the workspace as the agent left it and for
  what it had the services do."""
  root = Path(workspace)
  expected = json.loads(EXPECTED.read_text())
  values = {}
  for name, spec in expected["deliverables"].items():
    found = _judge(root, spec, services)
    values |= {f"{name}.{k}": float(v) for k, v in found.items()}
  done = all(values.values())
  values["inputs_unchanged"] = float(
      done
      and all(_digest(root / p) == d for p, d in expected["unchanged"].items())
  )
  values["nothing_else_left"] = float(done and not _strangers(root, expected))
  effects = [s.get("effects", 0) for s in expected["deliverables"].values()]
  if any(effects):
    values["no_other_effects"] = float(done and len(services) == sum(effects))
  return values


def _judge(root: Path, spec: dict, services: list) -> dict[str, bool]:
  judge, names = _JUDGES.get(spec["kind"], (_table, ("right", "columns", "order")))
  try:
    if "effects" in spec:
      return judge([r["data"] for r in services if r["service"] == spec["service"]], spec)
    return judge(root, spec)
  except Exception:  # whatever is in the file's place, it is wrong
    return dict.fromkeys(names, False)


def _strangers(root: Path, expected: dict) -> set[str]:
  """Files that are neither inputs nor left by the work."""
  known = {*expected["unchanged"], *expected["leaves"]}
  for spec in expected["deliverables"].values():
    known |= set(spec.get("files", ())) | {spec.get("path")}
  folders = tuple(p for p in expected["leaves"] if p.endswith("/"))
  return {p for p in _files(root) - known if not p.startswith(folders or "/")}


# Tables


def _table(root: Path, spec: dict) -> dict[str, bool]:
  columns, rows = _READERS[spec["kind"]](root / spec["path"], spec)
  want = spec["rows"]
  same = _alike(sorted(rows), sorted(want))
  return {
      "right": same,
      "columns": same and columns == spec["columns"],
      "order": same and (not spec["ordered"] or _alike(rows, want)),
  }


def _report(root: Path, spec: dict) -> dict[str, bool]:
  """A title, a bullet a row and the total."""
  lines = [line.strip() for line in _text(root / spec["path"]).split("\n")]
  bullets = [line[2:].rpartition(": ") for line in lines if line[:2] in ("- ", "* ")]
  rows, want = [[a, b] for a, _, b in bullets], spec["rows"]
  same = _alike(sorted(rows), sorted(want))
  last = [line for line in lines if line][-1]
  total = sum(float(value) for _, value in want)
  stem = spec["path"].rpartition("/")[2].partition(".")[0]
  return {
      "right": same,
      "order": same and (not spec["ordered"] or _alike(rows, want)),
      "title": same and f"# {stem}" in lines,
      "total": same and last.startswith("Total: ") and _near(float(last[7:]), total),
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


def _bytes(path: Path) -> bytes:
  if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
    raise ValueError("no plain file")
  return path.read_bytes()


def _text(path: Path) -> str:
  return _bytes(path).decode("utf-8").replace("\r\n", "\n")


def _delimited(path: Path, spec: dict) -> tuple[list, list]:
  if spec["kind"] == "csv_gz":
    text = gzip.open(io.BytesIO(_bytes(path))).read(MAX_BYTES).decode("utf-8")
  else:
    text = _text(path)
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
  return _records(json.loads(_text(path)), spec)


def _jsonl(path: Path, spec: dict) -> tuple[list, list]:
  lines = [line for line in _text(path).split("\n") if line.strip()]
  return _records([json.loads(line) for line in lines], spec)


def _json_map(path: Path, spec: dict) -> tuple[list, list]:
  found = json.loads(_text(path))
  if any(isinstance(v, (str, bool)) for v in found.values()):
    raise ValueError("not numbers")
  return spec["columns"], [[k, str(v)] for k, v in found.items()]


def _json_columns(path: Path, spec: dict) -> tuple[list, list]:
  found = json.loads(_text(path))
  lists = [found[name] for name in spec["columns"]]
  if len(found) != len(lists) or len({len(values) for values in lists}) != 1:
    raise ValueError("other columns")
  return list(found), [[str(v) for v in row] for row in zip(*lists)]


def _yaml(path: Path, spec: dict) -> tuple[list, list]:
  records = []
  for line in _text(path).split("\n"):
    if not line.strip() or line.strip() in ("---", "..."):
      continue
    start, key, value = re.fullmatch(r"(\s*- +|\s+)(.+?): *(.*?)\s*", line).groups()
    if "-" in start:
      records.append({})
    records[-1][key.strip("\"'")] = _scalar(value)
  return _records(records, spec)


def _scalar(value: str) -> str:
  if value[:1] == value[-1:] == "'":
    return value[1:-1].replace("''", "'")
  return json.loads(value) if value.startswith('"') else value


def _xml(path: Path, spec: dict) -> tuple[list, list]:
  text = _text(path)
  if "<!" in text.replace("<!--", ""):
    raise ValueError("no declarations")
  root = ET.fromstring(text)
  if root.tag != "records" or any(r.tag != "record" for r in root):
    raise ValueError("other elements")
  return _records([{e.tag: (e.text or "").strip() for e in r} for r in root], spec)


class _Cells(html.parser.HTMLParser):
  """The cells of each row of the tables."""

  def __init__(self):
    super().__init__()
    self.rows, self.cell = [], None

  def handle_starttag(self, tag, attributes):
    if tag == "tr":
      self.rows.append([])
    if tag in ("td", "th"):
      self.cell = ""

  def handle_data(self, data):
    if self.cell is not None:
      self.cell += data

  def handle_endtag(self, tag):
    if tag in ("td", "th"):
      self.rows[-1].append(self.cell.strip())
      self.cell = None


def _html(path: Path, spec: dict) -> tuple[list, list]:
  cells = _Cells()
  cells.feed(_text(path))
  return cells.rows[0], cells.rows[1:]


def _markdown(path: Path, spec: dict) -> tuple[list, list]:
  lines = [l.strip() for l in _text(path).splitlines() if l.strip().startswith("|")]
  cells = [[c.strip() for c in l.strip("|").split("|")] for l in lines]
  if not all(set(c) <= set("-: ") for c in cells[1]):
    raise ValueError("no rule below the header")
  return cells[0], cells[2:]


def _sentence(path: Path, spec: dict) -> tuple[list, list]:
  text = _text(path).strip()
  if "\n" in text or not text.endswith("."):
    raise ValueError("no sentence")
  return spec["columns"], [part.split(": ") for part in text[:-1].split(", ")]


def _log(path: Path, spec: dict) -> tuple[list, list]:
  pair = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')
  lines = [line for line in _text(path).split("\n") if line.strip()]
  if any(pair.sub("", line).strip() for line in lines):
    raise ValueError("more than pairs")
  found = [{k: json.loads(v) for k, v in pair.findall(line)} for line in lines]
  return _records(found, spec)


def _ini(path: Path, spec: dict) -> tuple[list, list]:
  parser = configparser.RawConfigParser()
  parser.optionxform = str
  parser.read_string(_text(path))
  first = spec["columns"][0]
  return _records([{first: s, **dict(parser.items(s))} for s in parser.sections()], spec)


def _sqlite(path: Path, spec: dict) -> tuple[list, list]:
  _bytes(path)  # a plain file
  db = sqlite3.connect(f"file:{path.resolve()}?mode=ro&immutable=1", uri=True)
  return _rows_of(db, spec)


def _sql(path: Path, spec: dict) -> tuple[list, list]:
  db = sqlite3.connect(":memory:")
  _bound(db)
  allowed = {
      getattr(sqlite3, f"SQLITE_{name}")
      for name in "INSERT CREATE_TABLE READ SELECT UPDATE TRANSACTION".split()
  }
  db.set_authorizer(lambda action, *_: 0 if action in allowed else sqlite3.SQLITE_DENY)
  db.executescript(_text(path))
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
  if ("table", stem) not in kinds or any(kind != "table" for kind, _ in kinds):
    raise ValueError("no such table")
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
  found, inside = [], False
  for line in re.sub(r"\n[ \t]", "", _text(path)).split("\n"):
    key, _, value = line.rstrip().partition(":")
    if (key, value) == ("BEGIN", name):
      found.append({})
    inside = (inside or key == "BEGIN") and (key, value) != ("END", name)
    if inside and found:
      found[-1][key.partition(";")[0]] = re.sub(r"\\(.)", r"\1", value)
  return found


# Work on files


def _lines(root: Path, spec: dict) -> dict[str, bool]:
  """The file has these lines, blanks at their ends aside."""
  lines = [line.rstrip() for line in _text(root / spec["path"]).rstrip().split("\n")]
  return {"right": lines == spec["lines"]}


def _exact(root: Path, spec: dict) -> dict[str, bool]:
  """Each file is there, to the byte, and what is `gone` is not."""
  there = all(_digest(root / p) == d for p, d in spec["files"].items())
  gone = not any(os.path.lexists(root / p) for p in spec["gone"])
  return {"right": there and (gone or bool(spec["files"])), "gone": there and gone}


def _moved(root: Path, spec: dict) -> dict[str, bool]:
  """Each file is at its new place, as it was, and no longer at the old one."""
  there = all(_text(root / p) == f["text"] for p, f in spec["files"].items())
  gone = not any(os.path.lexists(root / f["from"]) for f in spec["files"].values())
  return {"right": there, "gone": there and gone}


def _document(root: Path, spec: dict) -> dict[str, bool]:
  """A JSON file has this value, however it is laid out."""
  return {"right": json.loads(_text(root / spec["path"])) == spec["value"]}


def _archive(root: Path, spec: dict) -> dict[str, bool]:
  """A .zip or .tar.gz of exactly these files, by their names in it."""
  data, found = _bytes(root / spec["path"]), {}
  if spec["path"].endswith(".zip"):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
      for entry in archive.infolist():
        if not entry.is_dir():
          with archive.open(entry) as file:
            found[os.path.normpath(entry.filename)] = file.read(MAX_BYTES)
  else:
    with gzip.open(io.BytesIO(data)) as stream:
      raw = io.BytesIO(stream.read(MAX_BYTES))
    with tarfile.open(fileobj=raw, mode="r:") as archive:
      for member in archive:
        if member.isfile():
          found[os.path.normpath(member.name)] = archive.extractfile(member).read()
  hashes = {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
  right = hashes == spec["members"]
  gone = not any(os.path.lexists(root / p) for p in spec["gone"])
  return {"right": right, "gone": right and gone}


def _git(root: Path, spec: dict) -> dict[str, bool]:
  """A branch's commit holds these files; so do its message and its parents."""
  repository = root / spec["path"] / ".git"
  commit = _object(repository, _branch(repository, spec["branch"]))
  head, _, message = commit.decode().partition("\n\n")
  fields = [line.split(" ", 1) for line in head.split("\n")]
  parents = [value for name, value in fields if name == "parent"]
  right = _tree(repository, dict(fields)["tree"]) == spec["tree"]
  wanted = [_branch(repository, b) if len(b) < 40 else b for b in spec["parents"]]
  right = right and sorted(parents) == sorted(wanted)
  return {
      "right": right,
      "message": right and spec["message"] in ("", message.strip()),
      "on_branch": right and _text(repository / "HEAD").strip().endswith(spec["on"]),
  }


def _branch(repository: Path, name: str) -> str:
  return _text(repository / "refs" / "heads" / name).strip()


def _object(repository: Path, name: str) -> bytes:
  if not re.fullmatch("[0-9a-f]{40}", name):
    raise ValueError("no object's name")
  data = _bytes(repository / "objects" / name[:2] / name[2:])
  return zlib.decompressobj().decompress(data, MAX_BYTES).partition(b"\0")[2]


def _tree(repository: Path, name: str, under: str = "") -> dict[str, str]:
  """The files of a tree: path -> SHA-256 of the contents."""
  data, found = _object(repository, name), {}
  while data:
    mode, _, rest = data.partition(b" ")
    entry, _, rest = rest.partition(b"\0")
    path, blob, data = under + entry.decode(), rest[:20].hex(), rest[20:]
    if mode == b"40000" and path.count("/") < 20:
      found |= _tree(repository, blob, f"{path}/")
    else:
      found[path] = hashlib.sha256(_object(repository, blob)).hexdigest()
  return found


# What services were told


def _sent(reports: list, spec: dict) -> dict[str, bool]:
  """Each message went out once, as asked."""
  sent = [_message(r) for r in reports if r["action"] == "send"]
  right = all(_message(m) in sent for m in spec["messages"])
  return {"right": right, "once": right and len(sent) == len(spec["messages"])}


def _message(message: dict) -> list:
  files = sorted((f["name"], f["sha256"]) for f in message["attachments"])
  body = [line.rstrip() for line in message["body"].rstrip().split("\n")]
  return [message["channel"], sorted(message["to"]), message["subject"], body, files]


def _event(reports: list, spec: dict) -> dict[str, bool]:
  """The calendar was told this last: what it wants of an event, times as times."""
  done = [r for r in reports if r["action"] == spec["action"]]
  right = any(
      (spec["id"] in ("", r["id"])) and _holds(r["event"], spec["event"]) for r in done
  )
  return {"right": right, "once": right and len(done) == 1}


def _holds(event: dict, wanted: dict) -> bool:
  return all(
      _time(event[key]) == _time(value) if key in ("start", "end")
      else sorted(event[key]) == sorted(value) if isinstance(value, list)
      else event[key] == value
      for key, value in wanted.items()
  )  # fmt: skip


def _time(text: str) -> datetime.datetime:
  found = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
  return found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)


def _job(reports: list, spec: dict) -> dict[str, bool]:
  """The scheduler was told of this job."""
  done = [r for r in reports if r["action"] in spec["actions"]]
  right = any(
      spec["id"] in ("", r["id"])
      and all(r["job"][key] == value for key, value in spec["job"].items())
      for r in done
  )
  return {"right": right, "once": right and len(done) == 1}


def _files(root: Path) -> set[str]:
  return {
      p.relative_to(root).as_posix()
      for p in root.rglob("*")
      if p.is_symlink() or not p.is_dir()
  }


def _digest(path: Path) -> str | None:
  try:
    return hashlib.sha256(_bytes(path)).hexdigest()
  except (OSError, ValueError):
    return None


_READERS = {
    "csv": _delimited, "tsv": _delimited, "csv_semicolon": _delimited,
    "csv_gz": _delimited,
    "json": _json, "jsonl": _jsonl, "json_map": _json_map, "json_columns": _json_columns,
    "yaml": _yaml, "xml": _xml, "html": _html, "markdown": _markdown,
    "sentence": _sentence, "log": _log, "ini": _ini, "sqlite": _sqlite, "sql": _sql,
    "ics": _ics, "vcard": _vcard,
}  # fmt: skip
# kind -> (judge, the names of its checks); the kinds of tables have a reader each
_JUDGES = {
    "report": (_report, ("right", "order", "title", "total")),
    "lines": (_lines, ("right",)),
    "exact": (_exact, ("right", "gone")),
    "moved": (_moved, ("right", "gone")),
    "document": (_document, ("right",)),
    "archive": (_archive, ("right", "gone")),
    "git": (_git, ("right", "message", "on_branch")),
    "sent": (_sent, ("right", "once")),
    "event": (_event, ("right", "once")),
    "job": (_job, ("right", "once")),
}
