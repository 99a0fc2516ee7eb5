"""Executes a tool call in a sandbox; what goes wrong is text for the model.

`execute` never raises for anything a model can write: an unknown tool, bad
arguments, a missing file and a failing command all come back as text. Only
`SandboxLost` passes through, since no model can bring it about.
"""

from __future__ import annotations

from typing import Any

from clawgym_jax.contracts import json_text
from sandbox.backends import Sandbox, SandboxError

RESULT_CHARS = 4000
READ_BYTES = 1 << 20
EXEC_SECONDS = 30.0

_ARGUMENTS = {
    "read": {"path": str},
    "write": {"path": str, "content": str},
    "edit": {"path": str},
    "exec": {"command": str},
}
_PATH_ALIASES = ("file_path", "filePath", "file")


class _BadCall(Exception):
  """A call that its text answers."""


async def execute(
    sandbox: Sandbox,
    name: str,
    arguments: dict[str, Any] | str,
    *,
    seconds: float = EXEC_SECONDS,
) -> str:
  """The result of one call, at most `RESULT_CHARS` characters and a note.

  `arguments` is the parsed object or its JSON text; `seconds` bounds a
  command, whatever timeout the call itself asks for.
  """
  try:
    return shorten(await _dispatch(sandbox, name, arguments, seconds))
  except _BadCall as error:
    return f"Error: {error}"
  except SandboxError as error:
    return f"Error: {name} failed: {error}"


def shorten(text: str, limit: int = RESULT_CHARS) -> str:
  """`text`, or its head and tail around a note of how much is left out."""
  if len(text) <= limit:
    return text
  half = limit // 2
  return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


async def _dispatch(
    sandbox: Sandbox, name: str, arguments: dict[str, Any] | str, seconds: float
) -> str:
  if name not in _ARGUMENTS:
    raise _BadCall(f"no tool {name!r}; there are {', '.join(_ARGUMENTS)}")
  args = _checked(name, arguments)
  if name == "read":
    return await _read(sandbox, args)
  if name == "write":
    data = _encode(args["content"])
    await sandbox.write(args["path"], data)
    return f"Wrote {len(data)} bytes to {args['path']}"
  if name == "edit":
    return await _edit(sandbox, args)
  return await _exec(sandbox, args, seconds)


async def _read(sandbox: Sandbox, args: dict[str, Any]) -> str:
  text = (await sandbox.read(args["path"], READ_BYTES)).decode(errors="replace")
  offset, limit = args.get("offset"), args.get("limit")
  if offset is None and limit is None:
    return text or "(empty file)"
  first = max(1, _integer(offset, "offset", 1))
  count = max(0, _integer(limit, "limit", 2000))
  lines = text.splitlines(keepends=True)
  return "".join(lines[first - 1 : first - 1 + count]) or "(no such lines)"


async def _edit(sandbox: Sandbox, args: dict[str, Any]) -> str:
  path = args["path"]
  edits = args.get("edits")
  if edits is None and "oldText" in args:
    edits = [args]
  if not isinstance(edits, list) or not edits:
    raise _BadCall("edit needs edits, a list of {oldText, newText}")
  original = (await sandbox.read(path, READ_BYTES)).decode(errors="surrogateescape")
  spans = []
  for edit in edits:
    old, new = (
        (edit.get("oldText"), edit.get("newText")) if isinstance(edit, dict) else (0, 0)
    )
    if not isinstance(old, str) or not isinstance(new, str) or not old:
      raise _BadCall("each edit needs oldText (not empty) and newText, strings")
    times = original.count(old)
    if times != 1:
      raise _BadCall(f"oldText occurs {times} times in {path}, not once: {old[:80]!r}")
    start = original.index(old)
    spans.append((start, start + len(old), new))
  spans.sort()
  if any(a[1] > b[0] for a, b in zip(spans, spans[1:])):
    raise _BadCall("the edits overlap")
  for start, stop, new in reversed(spans):
    original = original[:start] + new + original[stop:]
  await sandbox.write(path, _encode(original))
  return f"Edited {path}: {len(spans)} replacement{'s' * (len(spans) > 1)}"


async def _exec(sandbox: Sandbox, args: dict[str, Any], seconds: float) -> str:
  asked = args.get("timeout")
  if isinstance(asked, (int, float)) and not isinstance(asked, bool) and asked > 0:
    seconds = min(seconds, float(asked))
  result = await sandbox.exec(args["command"], seconds)
  text = shorten(result.output).rstrip("\n") or "(no output)"
  if result.timed_out:
    return f"{text}\n\n(Command timed out after {seconds:g} seconds)"
  if result.out_of_memory:
    return f"{text}\n\n(Command killed: out of memory)"
  if result.exit_code != 0:
    return f"{text}\n\n(Command exited with code {result.exit_code})"
  return text


def _checked(name: str, arguments: dict[str, Any] | str) -> dict[str, Any]:
  if isinstance(arguments, str):
    try:
      arguments = json_text.parse(arguments or "{}")
    except ValueError as error:
      raise _BadCall(f"the arguments of {name} are not JSON: {error}") from None
  if not isinstance(arguments, dict):
    raise _BadCall(f"the arguments of {name} must be an object")
  args = dict(arguments)
  for alias in _PATH_ALIASES:
    if alias in args and "path" not in args:
      args["path"] = args.pop(alias)
  wrong = [
      f"{key} ({kind.__name__.replace('str', 'string')})"
      for key, kind in _ARGUMENTS[name].items()
      if not isinstance(args.get(key), kind)
  ]
  if wrong:
    raise _BadCall(f"{name} needs {', '.join(wrong)}")
  return args


def _integer(value: Any, name: str, default: int) -> int:
  if value is None:
    return default
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    raise _BadCall(f"{name} must be an integer")
  try:
    return int(value)
  except (OverflowError, ValueError):
    raise _BadCall(f"{name} must be an integer") from None


def _encode(text: str) -> bytes:
  """UTF-8; bytes that `read` could not decode go back as they were."""
  return text.encode("utf-8", errors="surrogateescape" if _escaped(text) else "replace")


def _escaped(text: str) -> bool:
  return all(not 0xD800 <= ord(c) <= 0xDFFF or 0xDC80 <= ord(c) <= 0xDCFF for c in text)
