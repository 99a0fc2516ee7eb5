"""Files of every kind and in every disorder: load code reads back the table."""

from __future__ import annotations

import datetime
import json
import os
import pickle
import subprocess
import sys
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from data_gen.compose.kinds import EVERY, KINDS, MESSES, MESSY, Kind
from data_gen.compose.setting import Setting
from data_gen.compose.table import Column, Table
from data_gen.compose.topics import TOPICS

SYSTEM_PYTHON = "/usr/bin/python3"  # what a sandbox has
REPOSITORY = Path(__file__).parents[2]

# Each punctuation mark means something to one of the kinds.
_TEXTS = (
    "plain words", "a, b; c", 'say "hi" twice', "x|y or \\|", "C:\\new dir\\",
    "<b>&amp; c", "k: v = w", "# no (comment", "\u00e9t\u00e9 \u00a35 %s", "-- [x] {y}",
)  # fmt: skip
_NAMES = ("Ann O'Hara", "Zo\u00eb M\u00fcller", "Li")
_FAR_NAMES = ("\u0141ukasz Nowak", "\u6771\u4eac \u592a\u90ce", "\U0001f600 Joy")


def _table(names: tuple[str, ...], rows: int = 50) -> Table:
  columns = (
      Column("order_id", "id"),
      Column("date", "date"),
      Column("client", "category", names),
      Column("note", "text"),
      Column("quantity", "integer", low=1, high=5000),
      Column("amount", "money", low=1, high=9000),
  )
  return Table(
      columns,
      tuple(
          (
              f"ORD-{1000 + number}",
              datetime.date(2026, 1, 31) + datetime.timedelta(37 * number % 60),
              names[number % len(names)],
              _TEXTS[number % len(_TEXTS)],
              97 * number,
              Decimal(12345 * number + 7 * number) / 100 - 20,
          )
          for number in range(rows)
      ),
  )


HARD, FAR = _table(_NAMES), _table(_FAR_NAMES)
_LOADER = """
import json, sys
for job, code in json.load(sys.stdin).items():
  names = {"json": json}
  try:
    exec(code, names)
    found = names["rows"]
  except Exception as error:
    found = repr(error)
  print(json.dumps([job, found]))
"""


def _place(root: Path, kind: Kind, table: Table, topic: str) -> str:
  """Writes the source; where it is."""
  source = f"{topic}/{kind.name}/records{kind.suffix}"
  for path, data in kind.write(table, source).items():
    assert path == source or (path.startswith(source + "/") and "//" not in path)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)
  return source


def _load(root: Path, codes: dict[str, str]) -> dict[str, object]:
  """What each load code finds, in a process of the sandbox's Python."""
  done = subprocess.run(
      [SYSTEM_PYTHON, "-I", "-c", _LOADER],
      input=json.dumps(codes), cwd=root, capture_output=True, text=True, check=True,
      env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "Asia/Tokyo"},
  )  # fmt: skip
  return dict(json.loads(line) for line in done.stdout.splitlines())


def _wrong(root: Path, pairs: list[tuple[Kind, str, Table]]) -> list[str]:
  """The pairs whose load code does not give the table's cells."""
  codes, want = {}, {}
  for kind, topic, table in pairs:
    if not kind.fits(table):
      continue
    source = _place(root, kind, table, topic)
    codes[source] = kind.load.format(path=source)
    ordered = kind.order(table)
    want[source] = [dict(zip(ordered.names, cells)) for cells in ordered.cells()]
  found = _load(root, codes)
  assert codes and found.keys() == codes.keys()
  return [f"{source}: {str(found[source])[:200]}" for source in codes
          if found[source] != want[source]]  # fmt: skip


def _draw(topic: str) -> Table:
  return TOPICS[topic].draw(Setting(f"kinds {topic}", "train"), 30)


def test_the_catalogue_is_broad():
  assert len(KINDS) >= 24 and len(MESSES) >= 13
  assert all(EVERY[name].name == name for name in EVERY)


@pytest.mark.parametrize("table", [HARD, FAR], ids=["hard", "far"])
def test_load_code_reads_back_every_kind_and_mess(table, tmp_path):
  assert not _wrong(tmp_path, [(kind, "a", table) for kind in EVERY.values()])
  unfit = {name for name, kind in EVERY.items() if not kind.fits(table)}
  narrow = {n for n in EVERY if "latin1" in n or n.split("_")[0] in ("pdf", "png")}
  assert unfit == (set() if table is HARD else narrow)


def test_load_code_reads_back_every_topic(tmp_path):
  """Every kind in every topic; the messes go round the topics."""
  pairs, messes = [], list(MESSY.values())
  for number, topic in enumerate(sorted(TOPICS)):
    table = _draw(topic)
    some = messes[number % 16 :: 16]
    pairs += [(kind, topic, table) for kind in (*KINDS.values(), *some)]
  assert not _wrong(tmp_path, pairs)


@pytest.mark.slow
def test_load_code_reads_back_every_mess_in_every_topic(tmp_path):
  for topic in sorted(TOPICS):
    table = _draw(topic)
    assert not _wrong(tmp_path, [(kind, topic, table) for kind in MESSY.values()])


@pytest.mark.parametrize("reseed", [1, 2])
def test_what_fits_a_topic_fits_it_over_other_records(reseed):
  for topic in sorted(TOPICS):
    setting = Setting(f"kinds {topic}", "train")
    here = TOPICS[topic].draw(setting, 30)
    there = TOPICS[topic].draw(setting.reseeded(reseed), 30)
    for name, kind in EVERY.items():
      assert kind.fits(here) == kind.fits(there), (topic, name)


def test_every_mess_fits_many_topics():
  for mess in MESSES.values():
    kind = MESSY[f"csv_{mess.name}"]
    assert sum(kind.fits(_draw(topic)) for topic in TOPICS) >= 10, mess.name


def test_a_mess_must_be_coped_with(tmp_path):
  """The plain kind's code is wrong on it, unless the kind is proof against it."""
  codes = {}
  for mess in MESSES.values():
    if not mess.tidy and mess.codec == "utf-8":
      continue
    for name in mess.kinds:
      source = _place(tmp_path, MESSY[f"{name}_{mess.name}"], HARD, "a")
      codes[source] = KINDS[name].load.format(path=source)
  found = _load(tmp_path, codes)
  for source in codes:
    ordered = KINDS[Path(source).parts[1].split("_")[0]].order(HARD)
    want = [dict(zip(ordered.names, cells)) for cells in ordered.cells()]
    if "markdown_bom" not in source:
      assert found[source] != want, source


def test_what_code_can_not_tell_is_said():
  for mess in MESSES.values():
    assert bool(mess.said) == bool(mess.tidy or mess.codec in ("latin-1", "utf-16"))
    assert not mess.said or mess.said.endswith(".")


def test_looking_works_and_changes_nothing(tmp_path):
  for name, kind in EVERY.items():
    if kind.look and (name in KINDS or name.startswith("csv")):
      source = _place(tmp_path, kind, HARD, "a")
      done = subprocess.run(
          ["sh", "-c", kind.look.format(path=source)],
          cwd=tmp_path, capture_output=True, env={"PATH": os.environ["PATH"]},
      )  # fmt: skip
      assert done.returncode == 0 and done.stdout and not done.stderr, name
      written = kind.write(HARD, source)
      folder = tmp_path / source if not (tmp_path / source).is_file() else None
      left = [p for p in folder.rglob("*") if p.is_file()] if folder else [source]
      assert len(left) == len(written), name


_DIGEST = """
import hashlib, pickle, sys
sys.path.insert(0, ".")
from data_gen.compose.kinds import EVERY
table, whole = pickle.load(sys.stdin.buffer), hashlib.sha256()
for kind in EVERY.values():
  one = hashlib.sha256()
  for path, data in sorted(kind.write(table, "a/x" + kind.suffix).items()):
    one.update(f"{path} {len(data)} ".encode() + data)
  print(kind.name, one.hexdigest()[:12])
  whole.update(one.digest())
print(whole.hexdigest())
"""
# Changes whenever the bytes of any kind do: tasks of one version are the same.
_BYTES = "679b691fc9834fe899dd0142c710f5782822484fb65e024bc94079aecfe86ed3"


@pytest.mark.parametrize(
    ("python", "surroundings"),
    [
        (sys.executable, {"LC_ALL": "C.UTF-8"}),
        (SYSTEM_PYTHON, {"LC_ALL": "C", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}),
    ],
)
def test_bytes_do_not_depend_on_the_machine(python, surroundings):
  done = subprocess.run(
      [python, "-B", "-c", _DIGEST], input=pickle.dumps(HARD), cwd=REPOSITORY,
      capture_output=True, env={"PATH": os.environ["PATH"], **surroundings},
  )  # fmt: skip
  assert done.returncode == 0, done.stderr.decode()
  lines = done.stdout.decode().splitlines()
  assert lines[-1] == _BYTES, "\n".join(lines)


def _written(tmp_path: Path, name: str) -> Path:
  return tmp_path / _place(tmp_path, KINDS[name], HARD, "a")


def test_git_finds_one_line_of_history_and_nothing_else(tmp_path):
  repository = _written(tmp_path, "git")

  def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(repository), *arguments],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip

  assert git("fsck", "--full", "--strict", "--unreachable", "--no-reflogs") == ""
  assert git("rev-list", "--count", "--all") == f"{len(HARD.rows)}\n"
  assert git("for-each-ref", "--format=%(refname)") == "refs/heads/main\n"
  assert git("remote") == git("reflog") == ""
  days = git("log", "--reverse", "--format=%ad", "--date=short").split()
  assert days == sorted(d.isoformat() for d in HARD.column("date"))


def test_a_workbook_opens(tmp_path):
  openpyxl = pytest.importorskip("openpyxl")
  sheet = openpyxl.load_workbook(_written(tmp_path, "xlsx")).active
  rows = [list(row) for row in sheet.iter_rows(values_only=True)]
  assert rows[0] == HARD.names
  assert [row[3:5] for row in rows[1:]] == [list(row[3:5]) for row in HARD.rows]
  assert [row[5] for row in rows[1:]] == [float(row[5]) for row in HARD.rows]


def test_a_document_opens(tmp_path):
  docx = pytest.importorskip("docx")
  document = docx.Document(str(_written(tmp_path, "docx")))
  rows = [[cell.text for cell in row.cells] for row in document.tables[0].rows]
  assert rows == [HARD.names, *HARD.cells()]


def test_a_pdf_opens(tmp_path):
  pypdf = pytest.importorskip("pypdf")
  pages = pypdf.PdfReader(_written(tmp_path, "pdf"), strict=True).pages
  text = "\n".join(page.extract_text() for page in pages)
  assert len(pages) == 2
  assert all(cell in text for row in HARD.cells() for cell in row)


def test_a_picture_opens(tmp_path):
  image = pytest.importorskip("PIL.Image")
  paths = sorted(_written(tmp_path, "png").iterdir())
  with image.open(paths[3]) as picture:
    picture.load()
    assert picture.text == dict(zip(HARD.names, HARD.cells()[3]))
    day = HARD.column("date")[3]
    assert picture.getexif()[0x0132] == f"{day:%Y:%m:%d} 08:00:00"


def test_yaml_opens(tmp_path):
  yaml = pytest.importorskip("yaml")
  found = yaml.safe_load(_written(tmp_path, "yaml").read_text())
  assert [list(r.values()) for r in found["records"]] == HARD.cells()


def test_toml_opens(tmp_path):
  found = tomllib.loads(_written(tmp_path, "toml").read_text())["records"]
  assert [list(r.values())[:5] for r in found] == [list(r[:5]) for r in HARD.rows]
