"""Grades a workspace by expected.json; copied into a composed task as check.py.

Standard library only. A deliverable's `right` is the check that needs the
work: all rows, to the cell. The other checks of a deliverable (its columns,
its count, its order) and those beside it (inputs and strangers) count only
where that one holds, so that doing nothing, or something else, scores 0.
Anything that an agent may leave in a file's place is merely wrong.
"""

import csv
import hashlib
import io
import json
import math
import os
from pathlib import Path

EXPECTED = Path(__file__).resolve().parent / "expected.json"
MAX_BYTES = 8 << 20


def grade(workspace: str, final_message: str, transcript: list) -> dict[str, float]:
  """Named values, 0.0 or 1.0, for the workspace as the agent left it."""
  root = Path(workspace)
  expected = json.loads(EXPECTED.read_text())
  values = {}
  for name, spec in expected["deliverables"].items():
    values |= {f"{name}.{k}": float(v) for k, v in _judge(root, spec).items()}
  done = all(values.values())
  values["inputs_unchanged"] = float(
      done
      and all(_digest(root / p) == d for p, d in expected["unchanged"].items())
  )
  known = {*expected["unchanged"], *expected["leaves"]}
  for spec in expected["deliverables"].values():
    known |= set(spec.get("files", ())) | {spec.get("path")}
  values["nothing_else_left"] = float(done and _files(root) <= known)
  return values


def _judge(root: Path, spec: dict) -> dict[str, bool]:
  judge, names = _JUDGES.get(spec["kind"], (_table, _TABLE))
  try:
    return judge(root, spec)
  except Exception:  # whatever is in the file's place, it is wrong
    return dict.fromkeys(names, False)


def _table(root: Path, spec: dict) -> dict[str, bool]:
  columns, rows = _READERS[spec["kind"]](_text(root / spec["path"]), spec)
  want = spec["rows"]
  same = _alike(sorted(rows), sorted(want))
  return {
      "right": same,
      "columns": same and columns == spec["columns"],
      "order": same and (not spec["ordered"] or _alike(rows, want)),
  }


def _lines(root: Path, spec: dict) -> dict[str, bool]:
  """The file has these lines, blanks at their ends aside."""
  lines = [line.rstrip() for line in _text(root / spec["path"]).rstrip().split("\n")]
  return {"right": lines == spec["lines"]}


def _moved(root: Path, spec: dict) -> dict[str, bool]:
  """Each file is at its new place, as it was, and no longer at the old one."""
  there = all(_text(root / p) == f["text"] for p, f in spec["files"].items())
  gone = not any(os.path.lexists(root / f["from"]) for f in spec["files"].values())
  return {"right": there, "gone": there and gone}


def _alike(rows: list, want: list) -> bool:
  return len(rows) == len(want) and all(
      len(a) == len(b) and all(map(_same, a, b)) for a, b in zip(rows, want)
  )


def _same(a: str, b: str) -> bool:
  if a == b:
    return True
  try:
    return math.isclose(float(a), float(b), rel_tol=0, abs_tol=0.005)
  except ValueError:
    return False


def _text(path: Path) -> str:
  if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
    raise ValueError("no plain file")
  return path.read_text(encoding="utf-8")


def _csv(text: str, spec: dict) -> tuple[list, list]:
  header, *rows = [r for r in csv.reader(io.StringIO(text)) if r]
  return header, rows


def _json(text: str, spec: dict) -> tuple[list, list]:
  records = json.loads(text)
  columns = list(records[0]) if records else spec["columns"]
  if any(set(r) != set(spec["columns"]) for r in records):
    raise ValueError("other keys")
  return columns, [[str(r[c]) for c in spec["columns"]] for r in records]


def _json_map(text: str, spec: dict) -> tuple[list, list]:
  found = json.loads(text)
  if any(isinstance(v, (str, bool)) for v in found.values()):
    raise ValueError("not numbers")
  return spec["columns"], [[k, str(v)] for k, v in found.items()]


def _markdown(text: str, spec: dict) -> tuple[list, list]:
  lines = [l.strip() for l in text.splitlines() if l.strip().startswith("|")]
  cells = [[c.strip() for c in l.strip("|").split("|")] for l in lines]
  if not all(set(c) <= set("-: ") for c in cells[1]):
    raise ValueError("no rule below the header")
  return cells[0], cells[2:]


def _files(root: Path) -> set[str]:
  return {
      p.relative_to(root).as_posix()
      for p in root.rglob("*")
      if p.is_symlink() or not p.is_dir()
  }


def _digest(path: Path) -> str | None:
  if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
    return None
  return hashlib.sha256(path.read_bytes()).hexdigest()


_READERS = {"csv": _csv, "json": _json, "json_map": _json_map, "markdown": _markdown}
_TABLE = ("right", "columns", "order")
# kind -> (judge, the names of its checks); the kinds of tables have a reader each
_JUDGES = {"lines": (_lines, ("right",)), "moved": (_moved, ("right", "gone"))}
