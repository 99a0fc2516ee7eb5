"""A copy of a task whose checks judge more than its own result.

One verifier's sandbox then judges all states of an audit. The first message
of a state's transcript names the expectations: the task's own; those of the
same request over other records; or its own with another locale, time zone and
date around them. The checks' source is what the task has, byte for byte. The
copy's solution runs under that other locale and zone.
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
_LOCALE = {"LC_ALL": "C", "LANG": "C", "TZ": "Pacific/Kiritimati"}

_DISPATCH = '''"""Grades by the expectations that the first message names."""

import importlib.util
import locale
import os
import sys
import time
from pathlib import Path

AROUND = {around!r}


def load(name):
  path = Path(__file__).resolve().parent / name / "check.py"
  sys.path.insert(0, str(path.parent))
  spec = importlib.util.spec_from_file_location(f"check_{{name}}", path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module
  spec.loader.exec_module(module)
  sys.path.remove(str(path.parent))
  return module.grade


GRADES = {{name: load(name) for name in {names!r}}}


def grade(workspace, final_message, transcript, services=()):
  first, *transcript = transcript
  name = first["content"]
  if name == {elsewhere!r}:
    os.environ.update(AROUND)
    time.tzset()
    locale.setlocale(locale.LC_ALL, "")
  chosen = GRADES.get(name, GRADES[{own!r}])
  code = chosen.__code__
  taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
  more = {{"services": list(services)}} if "services" in taken else {{}}
  return chosen(workspace, final_message, transcript, **more)
'''


def bundle(task: Task, place: Path, reseeded: Files | None = None) -> Task:
  """The copy, at `place`; `reseeded` are the checks over other records."""
  shutil.copytree(task.root, place, symlinks=True)
  expectations = {OWN: gather(task.checks)}
  if reseeded is not None:
    expectations[RESEEDED] = reseeded
  dispatch = _DISPATCH.format(
      around={**_LOCALE, "CLAWGYM_NOW": OTHER_NOW},
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
  """A solution whose commands run under another locale and time zone."""
  if isinstance(value, list):
    return [_elsewhere(item) for item in value]
  if not isinstance(value, dict):
    return value
  if value.get("name") == "exec" and "command" in value.get("arguments", {}):
    around = " ".join(f"{name}={setting}" for name, setting in _LOCALE.items())
    command = f"export {around}; {value['arguments']['command']}"
    return {**value, "arguments": {**value["arguments"], "command": command}}
  return {key: _elsewhere(item) for key, item in value.items()}
