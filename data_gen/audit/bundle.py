"""A copy of a task whose checks judge more than its own result.

Several states are judged at once, each in a folder of its own, by the
expectations that it names: the task's own; those of the same request over
other records; or its own with another locale, time zone and date around them
from there on. The checks' source is what the task has, byte for byte. The copy's
solution runs its commands with those around them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.files import write_json
from clawgym_jax.contracts.task import Task, content_hash, load_task
from sandbox.backends.base import Files, gather

OWN, RESEEDED, ELSEWHERE = "own", "reseeded", "elsewhere"
OTHER_NOW = "2031-11-23T23:30:00Z"
_AROUND = {
    "LC_ALL": "C", "LANG": "C", "TZ": "Pacific/Kiritimati", "CLAWGYM_NOW": OTHER_NOW,
}  # fmt: skip

_DISPATCH = '''"""Grades several states, each by the expectations that it names."""

import locale
import os
import sys
import time
import types
from pathlib import Path

AROUND = {around!r}
HERE = Path(__file__).resolve().parent
COMPILED = {{}}


def load(name):
  path = HERE / name / "check.py"
  source = path.read_bytes()
  if source not in COMPILED:
    COMPILED[source] = compile(source, str(path), "exec")
  module = types.ModuleType(f"check_{{name}}")
  module.__file__ = str(path)
  sys.modules[module.__name__] = module
  sys.path.insert(0, str(path.parent))
  exec(COMPILED[source], module.__dict__)
  sys.path.remove(str(path.parent))
  return module.grade


GRADES = {{name: load(name) for name in {names!r}}}


def grade(workspace, final_message, transcript, services=()):
  given = transcript[0]["content"]
  values = {{}}
  for number, state in enumerate(given["states"]):
    root = os.path.join(workspace, str(number)) if given["folders"] else workspace
    name = state["by"]
    if name == {elsewhere!r}:
      os.environ.update(AROUND)
      time.tzset()
      locale.setlocale(locale.LC_ALL, "")
    chosen = GRADES.get(name, GRADES[{own!r}])
    code = chosen.__code__
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    more = {{"services": state["services"]}} if "services" in taken else {{}}
    said = given["transcripts"][state["transcript"]]
    found = chosen(root, state["final_message"], said, **more)
    values |= {{f"{{number}} {{check}}": value for check, value in found.items()}}
  return values
'''


def bundle(task: Task, place: Path, reseeded: Files | None = None) -> Task:
  """The copy, at `place`; `reseeded` are the checks over other records."""
  shutil.copytree(task.root, place, symlinks=True)
  expectations = {OWN: gather(task.checks)}
  if reseeded is not None:
    expectations[RESEEDED] = reseeded
  dispatch = _DISPATCH.format(
      around=_AROUND,
      names=tuple(expectations),
      elsewhere=ELSEWHERE,
      own=OWN,
  )
  shutil.rmtree(place / "checks")
  checks = {"check.py": dispatch.encode()}
  for name, files in expectations.items():
    checks |= {f"{name}/{path}": data for path, data in files.items()}
  for path, data in checks.items():
    (place / "checks" / path).parent.mkdir(parents=True, exist_ok=True)
    (place / "checks" / path).write_bytes(data)
  calls = place / "solution" / "calls.json"
  write_json(calls, _elsewhere(json_text.parse(calls.read_text())))
  record = json_text.parse((place / "task.json").read_text())
  record.setdefault("provenance", {})["content_hash"] = content_hash(place, record)
  (place / "task.json").write_text(json.dumps(record))
  return load_task(place)


def _elsewhere(value: Any) -> Any:
  """A solution whose commands run under another locale, time zone and date."""
  if isinstance(value, list):
    return [_elsewhere(item) for item in value]
  if not isinstance(value, dict):
    return value
  if value.get("name") == "exec" and "command" in value.get("arguments", {}):
    around = " ".join(f"{name}={setting}" for name, setting in _AROUND.items())
    command = f"export {around}; {value['arguments']['command']}"
    return {**value, "arguments": {**value["arguments"], "command": command}}
  return {key: _elsewhere(item) for key, item in value.items()}
