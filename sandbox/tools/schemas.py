"""The tools' schemas: OpenClaw's contract, in two lengths.

`schemas` describes the tools as OpenClaw does. `compact_schemas` offers the
same tools with few words and only the arguments a small model needs: the
system prompt is paid for in every attempt. Arguments that the compact form
leaves out are still understood.
"""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string"}


def schemas() -> list[dict[str, Any]]:
  """OpenClaw-like schemas of read, write, edit and exec."""
  return [
      _tool(
          "read",
          "Read a text file. Long files are cut; use offset and limit to page.",
          {
              "path": {**_TEXT, "description": "File, relative to the workspace."},
              "offset": {
                  "type": "integer",
                  "description": "First line to read, counted from 1.",
              },
              "limit": {"type": "integer", "description": "Lines to read at most."},
          },
          ["path"],
      ),
      _tool(
          "write",
          "Write a file, replacing what is there; parent folders are created.",
          {
              "path": {**_TEXT, "description": "File, relative to the workspace."},
              "content": {**_TEXT, "description": "The whole new content."},
          },
          ["path", "content"],
      ),
      _tool(
          "edit",
          "Replace exact pieces of text in one file. Each oldText must occur"
          " exactly once in the original, and they must not overlap.",
          {
              "path": {**_TEXT, "description": "File, relative to the workspace."},
              "edits": {
                  "type": "array",
                  "items": {
                      "type": "object",
                      "properties": {"oldText": _TEXT, "newText": _TEXT},
                      "required": ["oldText", "newText"],
                  },
              },
          },
          ["path", "edits"],
      ),
      _tool(
          "exec",
          "Run a shell command in the workspace; stdout and stderr are merged.",
          {
              "command": {**_TEXT, "description": "The command line."},
              "timeout": {"type": "number", "description": "Seconds, default 30."},
          },
          ["command"],
      ),
  ]


def compact_schemas() -> list[dict[str, Any]]:
  """The same four tools in as few words as a small model needs."""
  edits = {
      "type": "array",
      "items": {
          "type": "object",
          "properties": {"oldText": _TEXT, "newText": _TEXT},
          "required": ["oldText", "newText"],
      },
  }
  return [
      _tool("read", "Read a file", {"path": _TEXT}, ["path"]),
      _tool(
          "write",
          "Write a file",
          {"path": _TEXT, "content": _TEXT},
          ["path", "content"],
      ),
      _tool("edit", "Replace text", {"path": _TEXT, "edits": edits}, ["path", "edits"]),
      _tool("exec", "Run a shell command", {"command": _TEXT}, ["command"]),
  ]


def _tool(
    name: str, description: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
  return {
      "type": "function",
      "function": {
          "name": name,
          "description": description,
          "parameters": {
              "type": "object",
              "properties": properties,
              "required": required,
          },
      },
  }
