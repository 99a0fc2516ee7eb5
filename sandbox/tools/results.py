"""What a tool says: text for the model, bounded, and errors as text.

`BadCall` carries the text that answers a call; it never leaves the package.
The four tools of every task say `Error: …`; the others say it as OpenClaw
does, in JSON.
"""

from __future__ import annotations

from clawgym_jax.contracts import json_text

RESULT_CHARS = 4000
PLAIN = ("read", "write", "edit", "exec")


class BadCall(Exception):
  """A call that its text answers."""


def shorten(text: str, limit: int = RESULT_CHARS) -> str:
  """`text`, or its head and tail around a note of how much is left out."""
  if len(text) <= limit:
    return text
  half = limit // 2
  return (
      f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
  )


def failure(name: str, cause: str) -> str:
  """What tool `name` says when it can't do what it was asked."""
  if name in PLAIN:
    return f"Error: {cause}"
  return json_text.dump({"status": "error", "tool": name, "error": shorten(cause)})
