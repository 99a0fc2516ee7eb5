"""Vectors of texts, kept in a file so that the next audit embeds what is new alone.

One record a text, by the hash of the model and the text. A file that can't be read is
as none: all of it can be computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from clawgym_jax.contracts.files import write_atomic
from data_gen.audit.embedding import PACKAGE, SIZE, TOKENS
from data_gen.audit.meaning import Vectors

FILE = ".embeddings.npy"
_RECORD = np.dtype([("key", np.uint8, 32), ("row", np.float32, SIZE)])


@contextlib.contextmanager
def remembered(path: Path, vectors: Vectors) -> Iterator[Vectors]:
  """`vectors`, but for what `path` knows; what it did not is there afterwards."""
  known = _read(path)
  before = len(known)

  def given(texts: Sequence[str]) -> np.ndarray:
    keys = [_key(text) for text in texts]
    new = {key: text for key, text in zip(keys, texts) if key not in known}
    if new:
      known.update(zip(new, vectors(list(new.values()))))
    return np.array([known[key] for key in keys], np.float32).reshape(-1, SIZE)

  try:
    yield given
  finally:
    if len(known) > before:
      _write(path, known)


def _key(text: str) -> bytes:
  return hashlib.sha256(f"{PACKAGE}\0{TOKENS}\0{text}".encode()).digest()


def _read(path: Path) -> dict[bytes, np.ndarray]:
  try:
    records = np.load(path, allow_pickle=False)
  except (OSError, ValueError, EOFError):
    return {}
  if records.dtype != _RECORD:
    return {}
  return {key.tobytes(): row for key, row in zip(records["key"], records["row"])}


def _write(path: Path, known: dict[bytes, np.ndarray]) -> None:
  records = np.zeros(len(known), _RECORD)
  records["key"] = np.frombuffer(b"".join(known), np.uint8).reshape(-1, 32)
  records["row"] = np.stack(list(known.values()))
  stream = io.BytesIO()
  np.save(stream, records, allow_pickle=False)
  write_atomic(path, stream.getvalue())
