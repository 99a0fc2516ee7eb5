"""What lies in a workspace: plain files of bounded size, by their path.

Part of check.py (see `checker`): standard library only.
"""

import hashlib
import json
from pathlib import Path

MAX_BYTES = 8 << 20


def read_bytes(path: Path) -> bytes:
  if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
    raise ValueError("no plain file")
  return path.read_bytes()


def read_text(path: Path) -> str:
  return read_bytes(path).decode("utf-8").replace("\r\n", "\n")


def read_json(text: str):
  """The value of a JSON text in which no object has a key twice."""
  return json.loads(text, object_pairs_hook=only_once)


def only_once(pairs) -> dict:
  """The pairs as a mapping; ValueError where a key comes again."""
  pairs = list(pairs)
  found = dict(pairs)
  if len(found) != len(pairs):
    raise ValueError("a key comes twice")
  return found


def all_files(root: Path) -> set[str]:
  return {
      p.relative_to(root).as_posix()
      for p in root.rglob("*")
      if p.is_symlink() or not p.is_dir()
  }


def digest_of(path: Path) -> str | None:
  try:
    return hashlib.sha256(read_bytes(path)).hexdigest()
  except (OSError, ValueError):
    return None
