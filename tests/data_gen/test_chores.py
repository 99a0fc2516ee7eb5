"""A chore's calls do what its checks expect, on other contents as well."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from data_gen.compose import checker
from data_gen.compose.checks import source
from data_gen.compose.chores import CHORES, Chore
from data_gen.compose.part import Part, expected
from data_gen.compose.setting import Setting
from data_gen.taxonomy import CATEGORY_OF

_RESEEDS = range(1, 9)
SERVED = sorted(name for name, one in CHORES.items() if one.requires)
PLAIN = sorted(CHORES.keys() - set(SERVED))


def _made(chore: Chore, split: str) -> tuple[Setting, Part]:
  for attempt in range(20):
    setting = Setting(f"{chore.name} {attempt}", split)
    part = chore.make(setting)
    if part:
      return setting, part
  raise AssertionError(f"{chore.name} is never made")


def _put(root: Path, files: dict[str, bytes]) -> None:
  for path, data in files.items():
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)


def _call(root: Path, name: str, arguments: dict, environment: dict) -> None:
  if name == "exec":
    done = subprocess.run(
        arguments["command"], shell=True, cwd=root, env=environment, text=True,
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, (arguments["command"], done.stderr[-500:])
    return
  path = root / arguments["path"]
  if name == "write":
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(arguments["content"])
  elif name == "edit":
    text = path.read_text()
    for edit in arguments["edits"]:
      assert text.count(edit["oldText"]) == 1
      text = text.replace(edit["oldText"], edit["newText"])
    path.write_text(text)
  else:
    assert path.is_file(), f"{path} is read"


def _environment(root: Path) -> dict[str, str]:
  return {"PATH": "/usr/bin:/bin", "HOME": str(root.parent), "LC_ALL": "C.UTF-8"}


def _grade(root: Path, part: Part, services: list, monkeypatch) -> dict[str, float]:
  place = root.parent / "expected.json"
  place.write_text(json.dumps(expected(part)))
  monkeypatch.setattr(checker, "EXPECTED", place)
  return checker.grade(str(root), "", [], services)


@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.parametrize("name", PLAIN)
def test_its_calls_are_right_here_and_on_other_contents(
    name, split, tmp_path, monkeypatch
):
  setting, part = _made(CHORES[name], split)
  again = next(
      filter(None, (CHORES[name].make(setting.reseeded(n)) for n in _RESEEDS))
  )
  assert (again.said, again.calls) == (part.said, part.calls)
  names = [{p for p in w.workspace if "/.git/" not in p} for w in (part, again)]
  assert names[0] == names[1] or name == "clean_up"
  assert again.workspace != part.workspace or name == "minutes"
  for number, one in enumerate((part, again)):
    root = tmp_path / str(number) / "w"
    _put(root, one.workspace)
    assert not any(_grade(root, one, [], monkeypatch).values()), "nothing was done"
    for call in part.calls:
      _call(root, call.name, call.arguments, _environment(root))
    values = _grade(root, one, [], monkeypatch)
    assert all(values.values()), values


@pytest.mark.parametrize("name", PLAIN)
def test_a_wrong_result_is_noticed(name, tmp_path, monkeypatch):
  """Each file that the calls left, with another byte, costs the reward; so does
  an input that is gone, or a file that nobody asked for."""
  _, part = _made(CHORES[name], "train")
  root = tmp_path / "w"
  _put(root, part.workspace)
  for call in part.calls:
    _call(root, call.name, call.arguments, _environment(root))
  specs = part.deliverables.values()
  results = [p for s in specs for p in (*s.get("files", ()), s.get("path")) if p]
  results = [root / p for p in results if (root / p).is_file()]
  for path in results:
    data = path.read_bytes()
    at = 40 if path.suffix in (".zip", ".gz") else len(data) - 2
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert not all(_grade(root, part, [], monkeypatch).values())
    path.write_bytes(data)
  for path in (path for path in part.workspace if path not in part.changed):
    data = (root / path).read_bytes()
    (root / path).unlink()
    assert not all(_grade(root, part, [], monkeypatch).values())
    (root / path).write_bytes(data)
  (root / "stranger.txt").write_text("x")
  values = _grade(root, part, [], monkeypatch)
  assert [k for k, v in values.items() if not v] == ["nothing_else_left"]


@pytest.mark.parametrize("name", CHORES)
def test_it_is_said_in_three_ways_and_with_its_paths(name):
  chore = CHORES[name]
  said = set()
  for number in range(60):
    part = chore.make(Setting(f"said {number}", "train"))
    if part is None:
      continue
    said.add(" ".join(part.said.split()[:3]))
    for spec in part.deliverables.values():
      if spec.get("path"):
        assert spec["path"] in part.said
  assert len(said) >= 3


def test_checks_and_atomic_operations():
  assert {c.atomic for c in CHORES.values()} <= set(CATEGORY_OF)


def test_check_py_is_one_file_that_needs_nothing_of_ours(tmp_path):
  _, part = _made(CHORES["unpack"], "train")
  (tmp_path / "check.py").write_bytes(source())
  (tmp_path / "expected.json").write_text(json.dumps(expected(part)))
  _put(tmp_path / "w", part.workspace)
  code = "import check, sys; print(sorted(check.grade(sys.argv[1], '', []).values()))"
  done = subprocess.run(
      ["/usr/bin/python3", "-c", code, str(tmp_path / "w")], cwd=tmp_path, text=True,
      capture_output=True, env={"PATH": os.defpath}, timeout=60,
  )  # fmt: skip
  assert done.stdout == "[0.0, 0.0, 0.0]\n", done.stderr


def test_a_program_that_does_not_end_is_wrong(tmp_path, monkeypatch):
  from data_gen.compose.checks import work

  monkeypatch.setattr(work, "SCRIPT_SECONDS", 0.5)
  spec = {
      "kind": "script", "path": "p.py", "input": "1\n", "output": "1", "keeps": ["# a"],
  }  # fmt: skip
  forks = "import os\nos.fork()\nprint(1, flush=True)\nwhile True: pass"
  for code in ("while True: pass", forks):
    (tmp_path / "p.py").write_text(code)
    assert not checker._judge(tmp_path, spec, [])["right"]
  code = "import sys\nprint(open(sys.argv[1]).read())\n"
  (tmp_path / "p.py").write_text(code)
  assert checker._judge(tmp_path, spec, []) == {"right": True, "rest": False}
  (tmp_path / "p.py").write_text(code + "# a\n")
  assert all(checker._judge(tmp_path, spec, []).values())


# Chores by services


class _Services:
  """A task's services in a folder, and who takes what they report."""

  def __init__(self, root: Path, part: Part):
    from sandbox.services import PROGRAMS, files  # where this tree has them

    task = type("T", (), {"requires": part.requires, "services": root / "none"})()
    for name, data in {**files(task), **part.services}.items():
      _put(root, {name: data})
      (root / name).chmod(0o755)
    assert set(part.requires) <= set(PROGRAMS)
    self.reports: list[dict] = []
    self.listener = socket.socket(socket.AF_UNIX)
    self.listener.bind(str(root / "report"))
    self.listener.listen(8)
    self.environment = {
        "PATH": f"{root / 'bin'}:/usr/bin:/bin", "LC_ALL": "C.UTF-8",
        "CLAWGYM_REPORT": str(root / "report"), "CLAWGYM_NOW": "2026-01-05T09:00:00Z",
    }  # fmt: skip
    threading.Thread(target=self._serve, daemon=True).start()

  def _serve(self) -> None:
    while True:
      try:
        channel, _ = self.listener.accept()
      except OSError:
        return  # closed at the end
      with channel, channel.makefile("rb") as lines:
        self.reports.append(json.loads(lines.readline()))
        channel.sendall(b"ok\n")


@pytest.mark.parametrize("name", SERVED)
def test_services_do_what_is_asked(name, tmp_path, monkeypatch):
  pytest.importorskip("sandbox.services")
  setting, part = _made(CHORES[name], "train")
  again = CHORES[name].make(setting.reseeded(1))
  assert (again.said, again.calls) == (part.said, part.calls)
  for number, one in enumerate((part, again)):
    root = tmp_path / str(number) / "w"
    root.mkdir(parents=True)
    _put(root, one.workspace)
    place = Path(tempfile.mkdtemp(prefix="sv"))  # short: a socket's path is bounded
    box = _Services(place, one)
    try:
      for call in part.calls:
        _call(root, call.name, call.arguments, box.environment)
    finally:
      box.listener.close()
      shutil.rmtree(place)
    assert not any(_grade(root, one, [], monkeypatch).values()) or name == "look_up"
    values = _grade(root, one, box.reports, monkeypatch)
    assert all(values.values()), (values, box.reports)
    if box.reports:
      twice = _grade(root, one, box.reports * 2, monkeypatch)
      assert not all(twice.values())
