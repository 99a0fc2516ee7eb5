"""read, write and edit: the files of the sandbox as text.

Bytes that are no UTF-8 show as replacement characters in `read` and go
through `edit` unchanged. A file that can't be read whole is never edited.
"""

from __future__ import annotations

import io
from typing import Any

from sandbox.backends import Sandbox
from sandbox.tools.call import Call, integer
from sandbox.tools.results import BadCall

READ_BYTES = 1 << 20
PAGE_LINES = 2000
PAGE_BYTES = 50 << 10

_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
}


async def read(call: Call, args: dict[str, Any]) -> str:
  """At most 2,000 lines or 50 KB, then a note of the next offset."""
  data = await call.sandbox.read(args["path"], READ_BYTES)
  for magic, kind in _IMAGES.items():
    if data.startswith(magic):
      return f"(a {kind} image: tools give text only)"
  text = data.decode(errors="replace")
  lines = io.StringIO(text, newline="\n").readlines()  # as sed and grep count them
  limit = args.get("limit")
  first = max(1, integer(args, "offset", 1))
  asked = len(lines) if limit is None else max(0, int(limit))
  page = _page(lines[first - 1 : first - 1 + min(asked, PAGE_LINES)])
  shown = "".join(page)
  if not shown:
    return "(no such lines)" if "offset" in args or "limit" in args else "(empty file)"
  following = first + len(page)
  if len(page) < min(asked, len(lines) - first + 1):
    return f"{shown.rstrip()}\n[… more lines follow: read on with offset={following} …]"
  if len(data) == READ_BYTES and following > len(lines):
    return f"{shown}\n[… only the first {READ_BYTES >> 20} MiB can be read: use exec …]"
  return shown


async def write(call: Call, args: dict[str, Any]) -> str:
  data = encode(args["content"])
  await call.sandbox.write(args["path"], data)
  return f"Wrote {len(data)} bytes to {args['path']}"


async def edit(call: Call, args: dict[str, Any]) -> str:
  """Each old text stands once in the original, and none overlaps another."""
  path = args["path"]
  edits = args.get("edits")
  if edits is None and "oldText" in args:
    edits = [args]
  if not isinstance(edits, list) or not edits:
    raise BadCall("edit needs edits, a list of {oldText, newText}")
  original = await whole_text(call.sandbox, path)
  spans = []
  for one in edits:
    old, new = (
        (one.get("oldText"), one.get("newText")) if isinstance(one, dict) else (0, 0)
    )
    if not isinstance(old, str) or not isinstance(new, str) or not old:
      raise BadCall("each edit needs oldText (not empty) and newText, strings")
    times = original.count(old)
    if times != 1:
      raise BadCall(f"oldText occurs {times} times in {path}, not once: {old[:80]!r}")
    start = original.index(old)
    spans.append((start, start + len(old), new))
  spans.sort()
  if any(a[1] > b[0] for a, b in zip(spans, spans[1:])):
    raise BadCall("the edits overlap")
  for start, stop, new in reversed(spans):
    original = original[:start] + new + original[stop:]
  await call.sandbox.write(path, encode(original))
  return f"Edited {path}: {len(spans)} replacement{'s' * (len(spans) > 1)}"


async def whole_text(sandbox: Sandbox, path: str) -> str:
  """A file's text from which `encode` makes the same bytes again."""
  data = await sandbox.read(path, READ_BYTES + 1)
  if len(data) > READ_BYTES:
    raise BadCall(f"{path} is larger than {READ_BYTES >> 20} MiB; change it with exec")
  return data.decode(errors="surrogateescape")


def encode(text: str) -> bytes:
  """UTF-8; bytes that could not be decoded go back as they were."""
  return text.encode("utf-8", errors="surrogateescape" if _escaped(text) else "replace")


def _escaped(text: str) -> bool:
  return all(not 0xD800 <= ord(c) <= 0xDFFF or 0xDC80 <= ord(c) <= 0xDCFF for c in text)


def _page(lines: list[str]) -> list[str]:
  """The first of `lines` that fit a page, one at least."""
  size = 0
  for index, line in enumerate(lines):
    size += len(line.encode())
    if size > PAGE_BYTES and index:
      return lines[:index]
  return lines
