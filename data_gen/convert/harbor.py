"""Harbor task directories, both ways.

  task.toml  instruction.md  environment/  tests/test.sh  solution/solve.sh

tests/test.sh leaves the score in /logs/verifier/reward.txt, and nothing where
the checks fail to give one; what the agent left there before is removed first.
One of ours comes back the same. Any other is imported whole, below
checks/harbor/, as a task that requires its image: its tests can't be run
without, so it is unscored here. What of its workspace a Dockerfile only copies
is in workspace/; what other instructions of it do is counted as lost.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.files import inside
from data_gen.convert import replay_program
from data_gen.convert.contents import Contents, place_files, seal
from data_gen.convert.foreign import (
    GENERATOR,
    came_home,
    file_name,
    grading,
    program_file,
    require_plain,
)
from data_gen.convert.losses import LeftOut, Losses
from data_gen.convert.unseen import count_unseen
from sandbox.backends.base import Files, gather
from sandbox.verify.clawgym import WORKSPACE as CLAWGYM_WORKSPACE
from sandbox.verify.imported import PACKAGE

FORM = "harbor"
IMAGE = "python:3.12-bookworm"  # has python3, git and coreutils
NEEDS_IMAGE = "its Harbor image"
SCHEMA = "1.1"
_UNSEEN = ("clock", "rubric", "messages")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]|\.(?=\.)")
_KEPT = "checks/harbor"
_WORKSPACE = "/workspace"
_CHECK = b'''"""The tests of a Harbor task, in harbor/tests/, run in its image alone."""


def grade(workspace, final_message, transcript):
  raise RuntimeError("this task is judged by Harbor: its tests need its image")
'''
_TEST = f"""#!/usr/bin/env bash
# Leaves the score, one number in [0, 1]; no file where the checks give none.
mkdir -p /logs/verifier
rm -rf /logs/verifier/reward.txt /logs/verifier/reward.json
score=$(python3 -I /tests/check.py {_WORKSPACE} --score) || exit 1
printf '%s\\n' "$score" > /logs/verifier/reward.txt
"""
_TEST_FOREIGN = f"""#!/usr/bin/env bash
# Leaves the number that the task's own reward package says.
mkdir -p /logs/verifier
rm -rf /logs/verifier/reward.txt /logs/verifier/reward.json
rm -rf {CLAWGYM_WORKSPACE}/reward
cp -r /tests/checks/reward {CLAWGYM_WORKSPACE}/reward
export HOME=/root OPENCLAW_REWARD_PAYLOAD=/tests/payload.json
cd {CLAWGYM_WORKSPACE} || exit 1
said=$(COMMAND) || exit 1
score=$(printf '%s\\n' "$said" | tail -n 1 | python3 -I -c '
import json, sys
said = json.load(sys.stdin)
print(sum(map(float, said.values())) / len(said) if isinstance(said, dict)
      else float(said))') || exit 1
printf '%s\\n' "$score" > /logs/verifier/reward.txt
"""
_SOLVE = f"""#!/usr/bin/env bash
set -e
solution=$(cd "$(dirname "$0")" && pwd)
cd {_WORKSPACE}
exec python3 "$solution/replay.py"
"""


def write(target: Path, tasks: Iterable[Contents], losses: Losses) -> int:
  new = 0
  target.mkdir(parents=True, exist_ok=True)
  for contents in tasks:
    try:
      files = contents.below(_KEPT) or _directory(contents, losses)
    except LeftOut as cause:
      losses.leave_out(contents.name, str(cause))
      continue
    new += place_files(target, contents.name, files)
  return new


def read(source: Path, losses: Losses, split: str) -> Iterator[Contents]:
  for directory in directories(source):
    try:
      yield _task(directory, split, losses)
    except LeftOut as cause:
      losses.leave_out(directory.name, str(cause))


def directories(source: Path) -> list[Path]:
  return sorted(path.parent for path in source.glob("[!.]*/task.toml"))


def _directory(contents: Contents, losses: Losses) -> Files:
  record = contents.record
  require_plain(record)
  foreign = PACKAGE in contents.files
  workdir = CLAWGYM_WORKSPACE if foreign else _WORKSPACE
  count_unseen(contents, _UNSEEN, losses)
  inputs = contents.below("workspace")
  tests = grading(contents)
  if foreign:
    package = json_text.parse(contents.files[PACKAGE])
    tests["payload.json"] = json_text.dump(package["payload"]).encode()
    command = f"bash -c {shlex.quote(package['command'])}"
    tests["test.sh"] = _TEST_FOREIGN.replace("COMMAND", command).encode()
  else:
    tests |= {"check.py": program_file(), "test.sh": _TEST.encode()}
  return {
      "task.toml": _toml(contents.name, record).encode(),
      "instruction.md": record["instruction"].encode() + b"\n",
      "environment/Dockerfile": _dockerfile(workdir, bool(inputs)).encode(),
      **{f"environment/workspace/{path}": data for path, data in inputs.items()},
      **{f"tests/{path}": data for path, data in tests.items()},
      **_solution(contents, losses),
  }


def _dockerfile(workdir: str, inputs: bool) -> str:
  copy = f"COPY workspace/ {workdir}/\n" if inputs else ""
  return f"FROM {IMAGE}\nWORKDIR {workdir}\n{copy}"


def _solution(contents: Contents, losses: Losses) -> Files:
  """The calls and what replays them, where shell and Python can."""
  calls = contents.files.get("solution/calls.json")
  if calls is None:
    return {}
  (turn,) = json_text.parse(calls)["turns"]
  names = {call["name"] for call in turn["calls"]}
  if not names <= replay_program.CALLS.keys():
    losses.parts["solution/solve.sh: its calls need tools of ours"] += 1
    return {}
  return {
      "solution/calls.json": calls,
      "solution/replay.py": Path(replay_program.__file__).read_bytes(),
      "solution/solve.sh": _SOLVE.encode(),
  }


def _toml(name: str, record: dict[str, Any]) -> str:
  told = ("id", "family", "split", "category", "macro_category", "operations", "hazard")
  limits = record.get("limits", {})
  sections: dict[str, dict[str, Any]] = {
      "": {"schema_version": SCHEMA},
      "task": {
          "name": f"clawgym-syndata/{_NOT_IN_NAMES.sub('-', name).lstrip('-._')}",
          "keywords": record["operations"],
      },
      "metadata": {
          key: record[key]
          for key in told
          if record.get(key) and record[key] != "none"
      }
      | {"difficulty": record.get("difficulty", 1)},
      "verifier": {"timeout_sec": 120.0},
      "agent": {"timeout_sec": float(limits.get("seconds", 120.0))},
      "environment": {
          "build_timeout_sec": 600.0,
          "cpus": 1,
          "memory_mb": 2048,
          "storage_mb": 10240,
          "network_mode": (
              "no-network" if record.get("network", "none") == "none" else "public"
          ),
      },
  }
  lines = []
  for section, values in sections.items():
    lines += ["", f"[{section}]"] if section else []
    lines += [f"{key} = {_value(value)}" for key, value in values.items()]
  return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
  """In TOML, whose basic strings are JSON's, but for DEL."""
  return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _task(directory: Path, split: str, losses: Losses) -> Contents:
  files = gather(directory)
  tests = _below("tests", files)
  ours = came_home(_below("environment/workspace", files), tests, losses)
  return ours or _imported(directory.name, files, split, losses)


def _imported(name: str, files: Files, split: str, losses: Losses) -> Contents:
  try:
    told = tomllib.loads(files["task.toml"].decode())
    prompt = files["instruction.md"].decode()
  except KeyError:
    raise LeftOut("it has no instruction.md: a task of several steps") from None
  except ValueError as error:
    raise LeftOut(f"it can't be read: {type(error).__name__}") from None
  if "tests/test.sh" not in files:
    raise LeftOut("it has no tests/test.sh")
  metadata = told.get("metadata") or {}
  workspace = _copied(_below("environment", files), losses)
  tags = metadata.get("tags") or told.get("task", {}).get("keywords") or ["unknown"]
  seconds = told.get("agent", {}).get("timeout_sec") or 600.0
  record = {
      "id": name,
      "instruction": prompt,
      "family": "imported-harbor",
      "split": split,
      "category": str(metadata.get("category") or ""),
      "operations": [str(tag) for tag in tags],
      "requires": [NEEDS_IMAGE],
      "limits": {"turns": 100, "seconds": float(seconds)},
      "provenance": {"generator": GENERATOR, "format": FORM},
  }
  kept = {f"{_KEPT}/{path}": data for path, data in files.items()}
  placed = {f"workspace/{path}": data for path, data in workspace.items()}
  try:
    name = file_name(name)
    return seal(name, record, {**placed, **kept, "checks/check.py": _CHECK})
  except (RecordError, OSError):
    raise LeftOut("it is no sound task") from None


def _copied(environment: Files, losses: Losses) -> Files:
  """What the Dockerfile copies into its working directory."""
  raw = environment.get("Dockerfile", b"").decode(errors="replace")
  workdir, workspace = "/", {}
  copies = []
  for line in raw.replace("\\\n", " ").splitlines():
    word, _, rest = line.strip().partition(" ")
    match word.upper():
      case "WORKDIR":
        workdir = posixpath.join(workdir, rest.strip())
      case "COPY" if not rest.strip().startswith(("-", "[")):
        *sources, place = rest.split() or [""]
        copies.append((sources, posixpath.join(workdir, place)))
      case "" | "FROM" | "ENV" | "CMD" | "LABEL" | "ARG" | "USER":
        pass
      case _ if not word.startswith("#"):
        losses.parts[f"what {word.upper()} in a Dockerfile does"] += 1
  for sources, place in copies:
    for path, data in _copy(environment, sources, place).items():
      below = posixpath.relpath(path, workdir)
      if inside(below):
        workspace[below] = data
      else:
        losses.parts["files outside the working directory of an image"] += 1
  return workspace


def _copy(environment: Files, sources: list[str], place: str) -> Files:
  """Where the files of `sources` come to lie, by absolute path."""
  found = {}
  for source in sources:
    source = posixpath.normpath(source.lstrip("/"))
    head = "" if source == "." else f"{source}/"
    for path, data in environment.items():
      if path.startswith(head):
        found[posixpath.join(place, path[len(head) :])] = data
      elif path == source:
        folder = place.endswith("/") or place.endswith("/.")
        name = PurePosixPath(path).name
        found[posixpath.join(place, name) if folder else place] = data
  return {posixpath.normpath(path): data for path, data in found.items()}


def _below(folder: str, files: Files) -> Files:
  head = f"{folder}/"
  return {p[len(head) :]: data for p, data in files.items() if p.startswith(head)}
