"""The literals of a call of the Claw tools."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from data_gen.audit.literals.files import contents
from data_gen.audit.literals.shell import shell
from data_gen.audit.literals.texts import leaves, plain, prose
from sandbox.tools.schemas import FULL

_SAID = frozenset("body text message description content query".split())
_FREE = frozenset("timeout limit offset yieldMs timeoutMs maxChars count lines".split())


def of_call(name: str, arguments: dict[str, Any]) -> Iterator[str]:
  """The literals of one call of the Claw tools."""
  if name == "exec":
    yield from shell(str(arguments.get("command", "")))
    arguments = {k: v for k, v in arguments.items() if k in ("workdir", "env")}
  path = str(arguments.get("path", ""))
  for key, value in arguments.items():
    if name == "write" and key == "content":
      yield from contents(path, str(value), shell)
    elif key in _FREE:
      continue
    elif key in ("oldText", "newText"):
      yield from contents(path, str(value), shell)
    elif name == "edit" and key == "edits" and isinstance(value, list):
      for edit in value:
        texts = edit.values() if isinstance(edit, dict) else ()
        for text in texts:
          yield from contents(path, str(text), shell)
    else:
      for text in leaves(value, keys=False):
        if text not in _chosen():
          yield from prose(text) if key in _SAID else plain(text)


@cache
def _chosen() -> frozenset[str]:
  """What the tools' schemas let a caller choose from."""
  return frozenset(_choices(list(FULL.values())))


def _choices(schema: Any) -> Iterator[str]:
  if isinstance(schema, dict):
    yield from schema.get("enum", ())
  for part in schema.values() if isinstance(schema, dict) else schema:
    if isinstance(part, (dict, list)):
      yield from _choices(part)
