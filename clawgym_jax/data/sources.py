"""Where records come from: files of lines, ArrayRecord shards, TFDS, the pool.

A source is a Grain data source, `len(source)` and `source[index]`, whose elements
are the bytes of one JSON record, read at random and from any process: it pickles
as where it is. `digest` says what all its records hold, wherever they lie. One
that is not there, or not whole, is a `UserError` when it is opened; a record that
can't be read is a `Bad` when it is read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import zlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.trajectory import to_record
from clawgym_jax.data.records import UNREADABLE, WRONG_TYPE, Bad
from clawgym_jax.pool import Pool

FORMS = (
    "a JSON lines file of chats or trajectories, the folder of a rollout, a file or"
    " folder of ArrayRecord shards, the folder of a TFDS dataset (with"
    " dataset_info.json; #SPLIT), or the URL of a pool (#CHANNEL)"
)
_SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})(\.array_record)?")


class Source(Protocol):
  """See the module's docstring. `name` is what the user called it."""

  name: str
  digest: str

  def __len__(self) -> int: ...

  def __getitem__(self, index: int) -> bytes: ...

  def where(self, index: int) -> str:
    """Where a person finds the record."""


@dataclasses.dataclass(frozen=True)
class Named:
  """One entry of a list of sources; `weight` is None where none was given."""

  name: str
  weight: float | None


def named(text: str) -> list[Named]:
  """The entries of "NAME[@WEIGHT],…"; a file of that very name is one entry.

  `UserError` for an empty list, a weight that is not positive, and where some
  entries have one and some don't.
  """
  if text and Path(text).exists():
    return [Named(text, None)]
  found = []
  for entry in filter(None, (part.strip() for part in text.split(","))):
    name, _, weight = entry.rpartition("@")
    try:
      found.append(Named(name, float(weight)) if name else Named(entry, None))
    except ValueError:
      found.append(Named(entry, None))
  if not found:
    raise UserError(f"no source of records is given: name {FORMS}")
  for one in found:
    if one.weight is not None and not 0 < one.weight < float("inf"):
      raise UserError(f"the weight of {one.name} is {one.weight}: give one above 0")
  if len({one.weight is None for one in found}) > 1:
    missing = next(one.name for one in found if one.weight is None)
    raise UserError(f"{missing} has no weight: give all NAME@WEIGHT, or none")
  return found


def open_source(name: str) -> Source:
  """The source that `name` names, read once through for its `digest`."""
  place, _, part = name.partition("#")
  if Path(name).exists():
    place, part = name, ""
  path = Path(place)
  if "://" in place:
    source: Source = _Pool(name, place, part or "train")
  elif not path.exists():
    raise UserError(f"there is no {place}: a source is {FORMS}")
  elif (path / "dataset_info.json").is_file():
    source = _Tfds(name, path, part or "train")
  elif part:
    raise UserError(f"{name}: {place} has no parts to choose {part!r} from")
  elif shards := _shards(path):
    source = _ArrayRecords(name, shards)
  else:
    source = _Lines(name, path / "trajectories.jsonl" if path.is_dir() else path)
  if not len(source):
    raise UserError(
        f"{name} holds no records: curate with a lower --min_reward, or name another"
        " part of it (#CHANNEL of a pool: rollouts use eval unless they are told)"
    )
  return source


def _shards(path: Path) -> list[Path]:
  """The shards at `path`, none if it is lines; a missing one is an error."""
  if path.is_file():
    return [path] if ".array_record" in path.name else []
  if (path / "trajectories.jsonl").is_file():
    return []
  found = sorted(p for p in path.iterdir() if ".array_record" in p.name)
  if not found:
    raise UserError(f"{path} is a folder without records: a source is {FORMS}")
  for whole in filter(None, (_SHARD.fullmatch(p.name) for p in found)):
    have = [p for p in found if p.name.startswith(f"{whole[1]}-")]
    if len(have) != int(whole[2]):
      raise UserError(
          f"{path} has {len(have)} of the {int(whole[2])} shards of {whole[1]}"
      )
  return found


def _digest_of(paths: list[Path]) -> str:
  digests = []
  for path in paths:
    with open(path, "rb") as file:
      digests.append(hashlib.file_digest(file, "sha256").hexdigest())
  return hashlib.sha256("".join(digests).encode()).hexdigest()


class _Lines:
  """A record a line; blank lines are none."""

  def __init__(self, name: str, path: Path):
    self.name = name
    self._path = path
    self._file: int | None = None  # opened by each process that reads
    places = []
    at = 0
    digest = hashlib.sha256()
    with open(path, "rb") as file:
      for number, line in enumerate(file, 1):
        digest.update(line)
        if line.strip():
          places.append((at, len(line), number))
        at += len(line)
    self.digest = digest.hexdigest()
    self._places = np.asarray(places, np.int64).reshape(-1, 3)

  def __getstate__(self) -> dict[str, Any]:
    return self.__dict__ | {"_file": None}

  def __len__(self) -> int:
    return len(self._places)

  def __getitem__(self, index: int) -> bytes:
    if self._file is None:
      self._file = os.open(self._path, os.O_RDONLY)
    start, size, _ = self._places[index]
    return os.pread(self._file, int(size), int(start))

  def where(self, index: int) -> str:
    return f"{self._path} line {self._places[index][2]}"


class _ArrayRecords:
  def __init__(self, name: str, shards: list[Path]):
    import grain  # loads jax, which not every helper needs

    self.name = name
    self.digest = _digest_of(shards)
    self._shards = shards
    try:
      self._records = grain.sources.ArrayRecordDataSource([str(s) for s in shards])
    except (RuntimeError, ValueError) as error:
      raise UserError(f"{name} can't be read: {error}") from None

  def __len__(self) -> int:
    return len(self._records)

  def __getitem__(self, index: int) -> bytes:
    try:
      return self._records[index]
    except (RuntimeError, ValueError, IndexError) as error:
      raise Bad(UNREADABLE, str(error)) from None

  def where(self, index: int) -> str:
    shards = self._shards[0] if len(self._shards) == 1 else self._shards[0].parent
    return f"{shards} record {index}"


class _Tfds:
  """A dataset with the feature `messages`, and maybe `tools`, a text that is JSON.

  `messages` is JSON too, or a sequence of dictionaries of texts; a message has
  what is not empty, and its `tool_calls` are JSON.
  """

  def __init__(self, name: str, folder: Path, split: str):
    import tensorflow_datasets as tfds  # takes seconds to load

    self.name = name
    self._folder, self._split = folder, split
    try:
      builder = tfds.builder_from_directory(folder)
      self._data = builder.as_data_source(split=split)
    except (ValueError, NotImplementedError, OSError, RuntimeError) as error:
      raise UserError(f"{name} can't be read: {error}") from None
    if "messages" not in builder.info.features:
      raise UserError(
          f"{name} has the features {', '.join(builder.info.features)}: a dataset of"
          " chats has `messages`, and may have `tools`"
      )
    files = sorted(folder.glob(f"*-{split}.*"))
    self.digest = _digest_of([folder / "features.json", *files])

  def __len__(self) -> int:
    return len(self._data)

  def __getitem__(self, index: int) -> bytes:
    try:
      example = self._data[index]
    except (RuntimeError, ValueError, IndexError) as error:
      raise Bad(UNREADABLE, str(error)) from None
    try:
      return json_text.dump(_chat(example)).encode()
    except (TypeError, ValueError, AttributeError) as error:
      raise Bad(WRONG_TYPE, str(error)) from None

  def where(self, index: int) -> str:
    return f"{self._folder} {self._split} {index}"


def _chat(example: dict[str, Any]) -> dict[str, Any]:
  messages = example["messages"]
  if isinstance(messages, bytes):
    chat = {"messages": json_text.parse(messages)}
  else:  # columns, with one entry a message
    rows = [dict(zip(messages, row)) for row in zip(*messages.values())]
    chat = {"messages": [_message(row) for row in rows]}
  if example.get("tools"):
    chat["tools"] = json_text.parse(example["tools"])
  return chat


def _message(row: dict[str, bytes]) -> dict[str, Any]:
  message = {k: v.decode() for k, v in row.items() if v or k in ("role", "content")}
  if "tool_calls" in message:
    message["tool_calls"] = json_text.parse(message["tool_calls"])
  return message


class _Pool:
  """The finished trajectories of a channel, as they are when it is opened."""

  def __init__(self, name: str, url: str, channel: str):
    self.name = name
    self._url, self._channel = url, channel
    self._pool: Pool | None = None  # opened by each process that reads
    file = url.removeprefix("sqlite:///")
    if file != url and not Path(file).is_file():
      raise UserError(f"there is no pool at {url}")
    self._ids = self._opened().finished(channel)
    digest = hashlib.sha256()
    for index in range(len(self._ids)):
      try:
        digest.update(hashlib.sha256(self[index]).digest())
      except Bad as bad:
        digest.update(str(bad).encode())
    self.digest = digest.hexdigest()

  def __getstate__(self) -> dict[str, Any]:
    return self.__dict__ | {"_pool": None}

  def __len__(self) -> int:
    return len(self._ids)

  def __getitem__(self, index: int) -> bytes:
    try:
      trajectory = self._opened().trajectory(self._ids[index])
    except (zlib.error, ValueError, KeyError, TypeError) as error:
      raise Bad(UNREADABLE, str(error)) from None
    return json_text.dump(to_record(trajectory)).encode()

  def where(self, index: int) -> str:
    return f"{self._url} {self._channel} {self._ids[index]}"

  def _opened(self) -> Pool:
    if self._pool is None:
      self._pool = Pool.open(self._url)
    return self._pool
