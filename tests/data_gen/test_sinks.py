"""What a sink's code writes is what the checks expect, and little else is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from data_gen.compose import checker
from data_gen.compose.operations import chain
from data_gen.compose.setting import Setting
from data_gen.compose.sinks import SINKS, Sink
from data_gen.compose.topics import TOPICS

_CHAINS = (
    ["above"], ["total_by"], ["count_by"], ["since", "weekday"], ["pivot"],
    ["latest", "share"], ["team"], ["violations"], ["by_month"],
)  # fmt: skip


def _written(folder: Path) -> dict[str, list[tuple[Sink, str, dict]]]:
  """Every sink's files of some results, written by one process."""
  found: dict[str, list] = {}
  code = ["import json"]
  for split in ("train", "heldout"):
    for number, names in enumerate(_CHAINS * 2):
      setting = Setting(f"sink {number} {split}", split)
      topic = setting.rng.choice(sorted(TOPICS.values(), key=lambda t: t.name))
      done = chain(names, setting, topic.draw(setting, 40))
      for sink in SINKS.values() if done else ():
        if not sink.takes(done.result):
          continue
        path = f"{sink.name}/of{split}{number}{sink.suffix}"
        cells = done.result.cells()
        rows = [dict(zip(done.result.names, row)) for row in cells]
        code += [f"rows = {rows!r}", sink.writing(path, done.result)]
        expected = sink.expected(path, done.result, done.ordered)
        found.setdefault(sink.name, []).append((sink, path, expected))
  done = subprocess.run(
      ["/usr/bin/python3", "-"], input="\n".join(code), text=True, cwd=folder,
      capture_output=True, timeout=120,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr[-2000:]
  return found


@pytest.fixture(scope="module")
def written(tmp_path_factory):
  folder = tmp_path_factory.mktemp("sinks")
  return folder, _written(folder)


def _judge(folder: Path, spec: dict) -> dict[str, bool]:
  return checker._judge(folder, spec, [])


@pytest.mark.parametrize("name", SINKS)
def test_what_the_code_writes_is_right(written, name):
  folder, found = written
  assert len(found[name]) >= 3, f"{name} takes few tables"
  for _, path, spec in found[name]:
    values = _judge(folder, json.loads(json.dumps(spec)))
    assert values and all(values.values()), (path, values)


@pytest.mark.parametrize("name", SINKS)
def test_other_rows_are_wrong(written, name):
  """One cell less or other, or one row less, and nothing is right."""
  folder, found = written
  _, _, spec = found[name][0]
  rows = spec["rows"]
  changed = [[*rows[0][:-1], rows[0][-1] + "7"], *rows[1:]]
  for wrong in (rows[1:], [*rows, rows[0]], changed, []):
    assert not any(_judge(folder, {**spec, "rows": wrong}).values())


@pytest.mark.parametrize("name", SINKS)
@pytest.mark.parametrize("junk", [b"", b"Save it as CSV, please.", b"\xff\0", b"[[]]"])
def test_junk_is_wrong(written, tmp_path, name, junk):
  _, _, spec = written[1][name][0]
  path = tmp_path / spec["path"]
  path.parent.mkdir()
  path.write_bytes(junk)
  assert not any(_judge(tmp_path, spec).values())


@pytest.mark.parametrize("name", sorted({*SINKS} - {"sqlite", "csv_gz"}))
def test_a_line_more_is_noticed(written, tmp_path, name):
  """One that comes twice, wherever it is, and one that nobody asked for."""
  folder, found = written
  _, path, spec = found[name][0]
  lines = (folder / path).read_text().splitlines()
  place = tmp_path / path
  place.parent.mkdir()
  for at in {0, len(lines) // 2, len(lines) - 1}:
    for more in (lines[at], "and so on"):
      if not more.strip():
        continue
      place.write_text("\n".join([*lines[: at + 1], more, *lines[at + 1 :], ""]))
      assert not all(_judge(tmp_path, spec).values()), (at, more)


def test_an_order_counts_beside_the_rows(written):
  folder, found = written
  _, _, spec = next(f for f in found["csv"] if f[2]["ordered"])
  values = _judge(folder, {**spec, "rows": spec["rows"][::-1]})
  assert values == {"right": True, "columns": True, "order": False}


def test_a_report_needs_its_total(written, tmp_path):
  folder, found = written
  _, path, spec = found["report"][0]
  text = (folder / path).read_text()
  (tmp_path / path).parent.mkdir()
  (tmp_path / path).write_text(text.rpartition("Total")[0])
  values = _judge(tmp_path, spec)
  assert values["right"] and not values["total"]


def test_sql_that_reaches_out_is_wrong(written, tmp_path):
  _, path, spec = written[1]["sql"][0]
  good = (written[0] / path).read_text()
  (tmp_path / path).parent.mkdir()
  endless = (
      "with recursive n(i) as (select 1 union all select i + 1 from n)"
      " insert into x select i from n;"
  )
  for bad in ("attach 'x.db' as x;", "create table x (i);" + endless):
    (tmp_path / path).write_text(good + bad)
    assert not any(_judge(tmp_path, spec).values())
  assert not (tmp_path / "x.db").exists()


def test_each_sink_is_asked_for_in_three_ways(written):
  for sink in SINKS.values():
    assert len(set(sink.said)) >= 3, sink.name
    for said in sink.said:
      assert "{path}" in said
