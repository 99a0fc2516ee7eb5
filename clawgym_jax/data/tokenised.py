"""A source as token ids on the disk: made once, read at random by any process.

An entry of the cache is a folder named after everything that its content follows
from: the records, the tokenizer with its template, this code, the settings. So
it never goes stale, and whoever meets the same records again has them at once.
Records are tokenised in chunks, each written whole or not at all: a killed run
goes on with the chunks that are missing, in any number of processes, and the
bytes are the same. Records that give nothing are listed with the cause.

  00000.npy …   ids of a chunk's sequences, int32; a trained one as its complement
  00000.json …  the chunk's sequences, and which records have none and why
  index.npz     record, chunk, start, length and trained tokens of all sequences
  index.json    all records without one; written last, so it means a whole entry
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import zipfile
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from clawgym_jax import cli
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_atomic, write_json
from clawgym_jax.contracts.runs import only_writer
from clawgym_jax.data import records, workers
from clawgym_jax.data.sequence import Sequence, supervised
from clawgym_jax.data.sources import Source

_CHUNK = 256  # records
_OPEN_CHUNKS = 256  # of a process that reads; each is one map of a file
_WAIT_SECONDS = 24 * 3600.0  # for another process that makes the same entry
_COLUMNS = ("record", "chunk", "start", "length", "trained")


class Tokenised:
  """A whole entry of the cache; `self[index]` is its sequence of that index.

  Attributes:
    folder: where it is.
    records: how many the source had.
    record, length, trained: [sequences], the record that a sequence is of, its
      tokens and its trained tokens.
    bad: of each bad record `record`, its index, `cause` and `detail`.
    left_out: how many records were not chosen, by why.
  """

  def __init__(self, folder: Path):
    self.folder = folder
    with _whole(folder):
      about = json.loads((folder / "index.json").read_text())
      self.records: int = about["records"]
      self.bad: list[dict[str, Any]] = about["bad"]
      self.left_out: dict[str, int] = about["left_out"]
      with np.load(folder / "index.npz") as columns:
        self.record, self._chunk, self._start, self.length, self.trained = (
            columns[name] for name in _COLUMNS
        )
    self._opened = functools.lru_cache(_OPEN_CHUNKS)(self._open)

  def __reduce__(self) -> tuple[Any, ...]:
    return Tokenised, (self.folder,)

  def __len__(self) -> int:
    return len(self.length)

  def __getitem__(self, index: int) -> Sequence:
    if not 0 <= index < len(self):
      raise IndexError(index)
    start = int(self._start[index])
    chunk = self._opened(int(self._chunk[index]))
    ids = chunk[start : start + int(self.length[index])]
    trained = ids < 0
    return supervised(np.where(trained, ~ids, ids), trained)

  def _open(self, chunk: int) -> np.ndarray:
    with _whole(self.folder):
      return np.load(self.folder / f"{chunk:05d}.npy", mmap_mode="r").view(np.ndarray)


@contextlib.contextmanager
def _whole(folder: Path) -> Iterator[None]:
  """What a damaged entry makes of its readers, as one `UserError`."""
  try:
    yield
  except (OSError, EOFError, LookupError, ValueError, zipfile.BadZipFile) as error:
    raise UserError(
        f"the cached tokens in {folder} are damaged ({error}): remove the folder and"
        " run the same command again"
    ) from None


def default_cache() -> Path:
  """Where tokens are kept if nothing else is said."""
  try:
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
  except RuntimeError:
    raise UserError(
        "this user has no home for tokens: give --config.data.cache=DIR, or set"
        " XDG_CACHE_HOME"
    ) from None
  return Path(caches) / "clawgym_jax" / "tokens"


def tokenise(
    source: Source,
    tokenizer: Tokenizer,
    cache: Path,
    *,
    min_reward: float = 0.0,
    processes: int = 0,
) -> Tokenised:
  """The entry of `source`, made in `processes` helpers or here if there is none.

  Waits while another process makes it. `UserError` for a full disk, and for a
  tokenizer without a chat template.
  """
  files = tokenizer.to_files()
  vocabulary = json.dumps(files, sort_keys=True).encode()
  entry = {
      "records": source.digest,
      "tokenizer": hashlib.sha256(vocabulary).hexdigest(),
      "code": _code(),
      "min_reward": min_reward,
  }
  folder = cache / hashlib.sha256(json.dumps(entry).encode()).hexdigest()[:24]
  if not (folder / "index.json").exists():
    with only_writer(folder, "process that tokenises", _WAIT_SECONDS):
      if not (folder / "index.json").exists():
        for torn in folder.glob(".[0-9i]*"):  # what a killed process was writing
          torn.unlink()
        _fill(folder, source, files, min_reward, processes)
  return Tokenised(folder)


def _fill(
    folder: Path,
    source: Source,
    files: dict[str, str],
    min_reward: float,
    processes: int,
) -> None:
  count = -(-len(source) // _CHUNK)
  missing = [n for n in range(count) if not (folder / f"{n:05d}.json").exists()]
  with cli.progress(count, "tokenise", done=count - len(missing), unit="chunk") as bar:
    for _ in workers.each(
        _write_chunk, missing, folder, source, files, min_reward,
        processes=processes,
    ):  # fmt: skip
      bar.update()
  columns: dict[str, list[int]] = {name: [] for name in _COLUMNS}
  bad, left_out = [], Counter()
  for number in range(count):
    chunk = json.loads((folder / f"{number:05d}.json").read_text())
    start = 0
    for record, length, trained in chunk["sequences"]:
      for name, value in zip(_COLUMNS, (record, number, start, length, trained)):
        columns[name].append(value)
      start += length
    bad += chunk["bad"]
    left_out.update(chunk["left_out"])
  arrays = {name: np.asarray(column, np.int64) for name, column in columns.items()}
  write_atomic(folder / "index.npz", _saved(np.savez, **arrays))
  write_json(
      folder / "index.json",
      {"records": len(source), "bad": bad, "left_out": dict(left_out)},
  )


def _write_chunk(
    folder: Path, source: Source, files: dict[str, str], min_reward: float, number: int
) -> None:
  tokenizer = _tokenizer(tuple(files.items()))
  parts, sequences, bad, left_out = [], [], [], Counter()
  for index in range(number * _CHUNK, min((number + 1) * _CHUNK, len(source))):
    try:
      made = records.sequences(source[index], tokenizer, min_reward=min_reward)
    except records.Bad as error:
      detail = error.detail[:500]
      bad.append({"record": index, "cause": error.cause, "detail": detail})
      continue
    except records.NotChosen as error:
      left_out[str(error)] += 1
      continue
    for one in made:
      parts.append(np.where(one.trained, ~one.tokens, one.tokens))
      sequences.append([index, len(one), one.trained_tokens])
  ids = np.concatenate(parts) if parts else np.zeros(0, np.int32)
  write_atomic(folder / f"{number:05d}.npy", _saved(np.save, ids))
  write_json(
      folder / f"{number:05d}.json",
      {"sequences": sequences, "bad": bad, "left_out": dict(left_out)},
  )


@functools.lru_cache(1)
def _tokenizer(files: tuple[tuple[str, str], ...]) -> Tokenizer:
  return Tokenizer.from_files(dict(files))


def _saved(save: Any, *arrays: np.ndarray, **named: np.ndarray) -> bytes:
  buffer = io.BytesIO()
  save(buffer, *arrays, **named)
  return buffer.getvalue()


@functools.cache
def _code() -> str:
  """What of this program the ids follow from, as one digest."""
  root = Path(__file__).parent.parent
  digest = hashlib.sha256()
  for path in _sources(root):
    digest.update(path.read_bytes())
  for library in ("tokenizers", "jinja2"):
    digest.update(metadata.version(library).encode())
  return digest.hexdigest()


def _sources(root: Path) -> Iterator[Path]:
  yield from sorted((root / "chat").rglob("*.py"))
  for name in ("json_text", "trajectory"):
    yield root / "contracts" / f"{name}.py"
  for name in ("records", "sequence", "tokenised", "trajectories"):
    yield root / "data" / f"{name}.py"
