"""What was asked for once is not asked for again, whatever ended in between.

A value lies in a file named by the SHA-256 of what it answers, written whole or
not at all. A file that is damaged counts as none.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.files import write_atomic


class Cache:
  """JSON values by the content of what was asked, below `folder`."""

  def __init__(self, folder: Path) -> None:
    self._folder = folder

  def get(self, asked: dict[str, Any]) -> Any | None:
    """The value kept for `asked`, or None."""
    try:
      return json_text.parse(self._path(asked).read_bytes())
    except (FileNotFoundError, ValueError):
      return None

  def put(self, asked: dict[str, Any], value: Any) -> None:
    write_atomic(self._path(asked), json_text.dump(value) + "\n")

  def _path(self, asked: dict[str, Any]) -> Path:
    text = json_text.dump({key: asked[key] for key in sorted(asked)})
    name = hashlib.sha256(text.encode()).hexdigest()
    return self._folder / name[:2] / f"{name}.json"
