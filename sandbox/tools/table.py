"""The tools by name: the schema, the function, and what makes a task have it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sandbox.tools import commands, files, memory, patch, process, services
from sandbox.tools.call import Call
from sandbox.tools.results import PLAIN
from sandbox.tools.schemas import COMPACT, FULL, Schema

DEFAULT = PLAIN  # the tools of every task


@dataclass(frozen=True)
class Tool:
  """One tool.

  Attributes:
    run: executes a call whose arguments fit the schema.
    service: the service whose tasks offer it.
    judged: arguments that `run` checks itself.
  """

  schema: Schema
  run: Callable[[Call, dict[str, Any]], Awaitable[str]]
  service: str | None = None
  judged: tuple[str, ...] = ()


TOOLS: dict[str, Tool] = {
    "read": Tool(FULL["read"], files.read),
    "write": Tool(FULL["write"], files.write),
    "edit": Tool(FULL["edit"], files.edit, judged=("edits",)),
    "apply_patch": Tool(FULL["apply_patch"], patch.apply_patch),
    "exec": Tool(FULL["exec"], commands.execute, judged=("timeout",)),
    "process": Tool(FULL["process"], process.process),
    "memory_search": Tool(FULL["memory_search"], memory.memory_search),
    "memory_get": Tool(FULL["memory_get"], memory.memory_get),
    "web_search": Tool(FULL["web_search"], services.web_search, "web"),
    "web_fetch": Tool(FULL["web_fetch"], services.web_fetch, "web"),
    "message": Tool(FULL["message"], services.message, "outbox"),
    "cron": Tool(FULL["cron"], services.cron, "cron"),
}


def offered(requires: Iterable[str]) -> tuple[str, ...]:
  """The tools that a task offers which requires these tools and services."""
  wanted = set(requires)
  return tuple(
      name
      for name, tool in TOOLS.items()
      if name in DEFAULT or name in wanted or tool.service in wanted
  )


def schemas(names: Iterable[str] = DEFAULT) -> list[Schema]:
  """OpenClaw-like schemas of the tools `names`."""
  return [FULL[name] for name in names]


def compact_schemas(names: Iterable[str] = DEFAULT) -> list[Schema]:
  """The same tools in as few words as a small model needs."""
  return [COMPACT[name] for name in names]
