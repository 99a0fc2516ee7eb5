"""memory_search and memory_get: MEMORY.md and memory/*.md of the workspace.

A search ranks paragraphs by words, not by meaning, so that the same notes
give the same answer everywhere.
"""

from __future__ import annotations

import re
from typing import Any

from clawgym_jax.contracts import json_text
from sandbox.backends import Sandbox
from sandbox.services.programs import ranking
from sandbox.tools.call import Call, integer
from sandbox.tools.files import PAGE_LINES, READ_BYTES
from sandbox.tools.results import RESULT_CHARS, BadCall, shorten

MOST_FILES = 200
MOST_BYTES = 4 << 20
PARAGRAPH_LINES = 20
SNIPPET_CHARS = 600
RESULTS = 6

_NOTE = re.compile(r"MEMORY\.md|memory/[^/]+\.md")


async def memory_search(call: Call, args: dict[str, Any]) -> str:
  """The paragraphs that fit best, with their lines."""
  paragraphs = []
  left = MOST_BYTES
  for path in await _notes(call.sandbox):
    text = (await call.sandbox.read(path, min(left, READ_BYTES))).decode(
        errors="replace"
    )
    left -= len(text.encode())
    paragraphs += [(path, *paragraph) for paragraph in _paragraphs(text)]
    if left <= 0:
      break
  least = args.get("minScore") or 0.0
  ranked = ranking.rank(args["query"], [text for *_, text in paragraphs])
  results = []
  for score, index in ranked[: integer(args, "maxResults", RESULTS)]:
    path, first, last, text = paragraphs[index]
    if score >= least:
      results.append(
          {
              "path": path,
              "startLine": first,
              "endLine": last,
              "score": round(score, 4),
              "snippet": text[:SNIPPET_CHARS],
          }
      )
  return json_text.dump({"results": _fitting(results)})


async def memory_get(call: Call, args: dict[str, Any]) -> str:
  """Lines of one note."""
  path = args["path"].removeprefix("/workspace/").removeprefix("./")
  if not _NOTE.fullmatch(path):
    raise BadCall(f"{path} is no note; notes are MEMORY.md and memory/*.md")
  text = (await call.sandbox.read(path, READ_BYTES)).decode(errors="replace")
  lines = text.split("\n")
  start = max(1, integer(args, "from", 1)) - 1
  count = min(PAGE_LINES, max(0, integer(args, "lines", PAGE_LINES)))
  shown = "\n".join(lines[start : start + count])
  return json_text.dump({"path": path, "text": shorten(shown, 3 * RESULT_CHARS // 4)})


async def _notes(sandbox: Sandbox) -> list[str]:
  """Paths of the notes there are, MEMORY.md first."""
  found = [e["path"] for e in await sandbox.list() if e["type"] == "file"]
  return sorted(path for path in found if _NOTE.fullmatch(path))[:MOST_FILES]


def _paragraphs(text: str) -> list[tuple[int, int, str]]:
  """(first line, last line, text) of what blank lines part, long ones cut."""
  found: list[tuple[int, int, str]] = []
  held: list[str] = []
  lines = text.split("\n")
  for number, line in enumerate([*lines, ""], 1):
    if line.strip():
      held.append(line)
    if held and (not line.strip() or len(held) == PARAGRAPH_LINES):
      last = number if line.strip() else number - 1
      found.append((last - len(held) + 1, last, "\n".join(held)))
      held = []
  return found


def _fitting(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
  """As many as a result of a tool can hold whole."""
  size, fit = 0, []
  for result in results:
    size += len(json_text.dump(result)) + 1
    if size > RESULT_CHARS - 100 and fit:
      break
    fit.append(result)
  return fit
