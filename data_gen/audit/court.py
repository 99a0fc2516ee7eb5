"""Warm verifiers for the audit: many states in a go, and many tasks after another.

All checks whose source is the same share one, since it is the same program; what
a task expects goes along with its states, each in a folder of its own. The source
is what the task has, byte for byte. States of one go are judged in order, each by
the expectations that it names: the task's own; those of the same request over
other records; or its own with another locale, time zone and date around them from
there on.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Self

from clawgym_jax.contracts.task import Reference, SolutionCall, Task, save_task
from sandbox.backends.base import Files, gather
from sandbox.verify import Verifier
from sandbox.verify.many import trusted

OWN, RESEEDED, ELSEWHERE = "own", "reseeded", "elsewhere"
OTHER_NOW = "2031-11-23T23:30:00Z"
SOURCE, EXPECTED = "check.py", "expected.json"
_AROUND = {
    "LC_ALL": "C", "LANG": "C", "TZ": "Pacific/Kiritimati", "CLAWGYM_NOW": OTHER_NOW,
}  # fmt: skip
_MOST = 2  # sources whose verifiers stay warm

_DISPATCH = '''"""Grades several states, each by the expectations that it names."""

import contextlib
import locale
import os
import sys
import time
import types
from pathlib import Path

AROUND = {around!r}
SOURCE = Path(__file__).resolve().parent / "judged.py"
CODE = compile(SOURCE.read_bytes(), str(SOURCE), "exec")
PLACE = Path("/tmp/expectations")


def load(name, expected):
  place = PLACE / name
  place.mkdir(parents=True)
  (place / {expected!r}).write_text(expected, encoding="utf-8")
  module = types.ModuleType(f"judged_{{name}}")
  module.__file__ = str(place / {source!r})
  sys.modules[module.__name__] = module
  exec(CODE, module.__dict__)
  return module.grade


with contextlib.suppress(Exception):  # what it imports is there for all that follow
  exec(CODE, {{"__name__": "judged", "__file__": str(SOURCE)}})


def grade(workspace, final_message, transcript, services=()):
  if not transcript:
    return {{"untouched": 0.0}}
  given = transcript[0]["content"]
  os.environ["CLAWGYM_NOW"] = given["now"]
  grades = {{name: load(name, text) for name, text in given["expected"].items()}}
  values = {{}}
  for number, state in enumerate(given["states"]):
    root = os.path.join(workspace, str(number)) if given["folders"] else workspace
    name = state["by"]
    if name == {elsewhere!r}:
      os.environ.update(AROUND)
      time.tzset()
      locale.setlocale(locale.LC_ALL, "")
    chosen = grades.get(name, grades[{own!r}])
    code = chosen.__code__
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    more = {{"services": state["services"]}} if "services" in taken else {{}}
    said = given["transcripts"][state["transcript"]]
    found = chosen(root, state["final_message"], said, **more)
    values |= {{f"{{number}} {{check}}": value for check, value in found.items()}}
  return values
'''.format(
    around=_AROUND, elsewhere=ELSEWHERE, own=OWN, source=SOURCE, expected=EXPECTED
)


class Court:
  """The warm verifiers; one go at a time. Use it as `async with`."""

  def __init__(self, backend: str = "bubblewrap"):
    self.backend = backend
    self._verifiers: dict[bytes, Verifier] = {}
    self._folder: tempfile.TemporaryDirectory | None = None

  async def __aenter__(self) -> Self:
    self._folder = tempfile.TemporaryDirectory()
    return self

  async def __aexit__(self, *exception: object) -> None:
    for verifier in self._verifiers.values():
      await verifier.close()
    self._verifiers.clear()
    self._folder.cleanup()

  async def verifier(self, source: bytes) -> Verifier:
    """Judges goes of states by checks of this source."""
    found = self._verifiers.pop(source, None)
    if found is None:
      while len(self._verifiers) >= _MOST:
        await self._verifiers.pop(next(iter(self._verifiers))).close()
      place = Path(tempfile.mkdtemp(dir=self._folder.name)) / "judge"
      task = _judging(place, source)
      found = Verifier(task, backend=self.backend, run_id="audit")
    self._verifiers[source] = found
    return found


def shared(task: Task) -> Files | None:
  """The checks of `task`, if they may share a verifier: they are our generator's,
  unchanged, and are nothing but a program and what it expects."""
  if not trusted(task):
    return None
  checks = gather(task.checks)
  return checks if checks.keys() == {SOURCE, EXPECTED} else None


def _judging(place: Path, source: bytes) -> Task:
  """The task whose checks are the dispatch over `source`."""
  return save_task(
      place,
      Task(
          id="judge", instruction="Judge.", family="audit", split="train",
          category="audit", operations=("audit",),
          provenance={"generator": "procedural-audit"},
      ),
      workspace={},
      checks={SOURCE: _DISPATCH.encode(), "judged.py": source},
      turns=[Reference([], "")],
  )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Elsewhere(Task):
  """A task whose solution runs its commands with another locale, time zone and
  date around them."""

  def reference(self) -> tuple[Reference, ...]:
    return tuple(
        dataclasses.replace(turn, calls=[_elsewhere(call) for call in turn.calls])
        for turn in super().reference()
    )


def elsewhere(task: Task) -> Task:
  """`task`, solved elsewhere."""
  fields = {f.name: getattr(task, f.name) for f in dataclasses.fields(Task)}
  return Elsewhere(**fields)


def _elsewhere(call: SolutionCall) -> SolutionCall:
  if call.name != "exec":
    return call
  around = " ".join(f"{name}={setting}" for name, setting in _AROUND.items())
  command = f"export {around}; {call.arguments.get('command', '')}"
  return dataclasses.replace(call, arguments={**call.arguments, "command": command})
