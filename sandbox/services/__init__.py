"""Mock services: programs in a sandbox that report what they do.

A task's services stand at /services: its seed files, the programs in
/services/bin (first in PATH) and their state. They belong to the agent, who
may read and break them; what counts is what the controller was told, in
`Sandbox.reports`, in order. Every harness reaches them by shell, and the Claw
tools call the same programs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.services import SERVICES
from clawgym_jax.contracts.task import Task
from sandbox.backends.base import Files, Sandbox, gather, pack
from sandbox.services.effects import effects

__all__ = [
    "BIN", "FOLDER", "PROGRAMS", "duplicates", "effects", "files", "folders", "guide",
    "required", "stage",
]  # fmt: skip

FOLDER = "/services"
BIN = f"{FOLDER}/bin"
PROGRAMS = {
    "outbox": ("outbox",),
    "calendar": ("calendar",),
    "cron": ("cron",),
    "web": ("websearch", "webfetch"),
}
_SHARED = ("service.py", "ranking.py", "pages.py")
_NEW = ("send", "add")  # actions that give what they make an id of its own


def required(task: Task) -> tuple[str, ...]:
  """The services that `task` needs, in the order of `SERVICES`."""
  return tuple(name for name in SERVICES if name in task.requires)


def files(task: Task) -> Files:
  """What is staged at /services; empty for a task that needs no service."""
  names = required(task)
  if not names:
    return {}
  programs = [program for name in names for program in PROGRAMS[name]]
  staged = dict(gather(task.services)) if task.services.is_dir() else {}
  for name in (*programs, *_SHARED):
    staged[f"bin/{name}"] = _program(name)
  return staged


def folders(task: Task) -> tuple[str, ...]:
  """The writable folders that a sandbox for `task` needs beside the workspace."""
  return (FOLDER,) if required(task) else ()


async def stage(task: Task, sandbox: Sandbox) -> None:
  """Puts the services of `task` in place, in a sandbox with its `folders`."""
  staged = files(task)
  if staged:
    await sandbox.restore(pack(staged), FOLDER)


def guide(task: Task) -> str:
  """What an agent is told of the programs; empty where there is none."""
  programs = [program for name in required(task) for program in PROGRAMS[name]]
  if not programs:
    return ""
  return f"Programs for this: {', '.join(programs)}. Each explains itself with --help."


def duplicates(reports: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
  """Side effects that happened more than once: {service, data, times}.

  Two are the same if all is but the ids that new things were given.
  """
  counted: Counter[str] = Counter()
  first: dict[str, dict[str, Any]] = {}
  for report in reports:
    data = _content(report["data"])
    key = json.dumps([report["service"], data], sort_keys=True)
    counted[key] += 1
    first.setdefault(key, {"service": report["service"], "data": data})
  return [{**first[key], "times": times} for key, times in counted.items() if times > 1]


def _content(data: Any) -> Any:
  if not isinstance(data, dict) or data.get("action") not in _NEW:
    return data
  return {
      key: (
          {k: v for k, v in value.items() if k != "id"}
          if isinstance(value, dict)
          else value
      )
      for key, value in data.items()
      if key != "id"
  }


@cache
def _program(name: str) -> bytes:
  folder = Path(__file__).parent / "programs"
  return (folder / (name if name.endswith(".py") else f"{name}.py")).read_bytes()
