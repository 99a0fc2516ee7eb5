"""ArrayRecord shards: one record a task, the tar of its directory.

A record is a group of its own, so that any of them can be read alone. The
shards appear under their names all at once.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import room_for
from data_gen.convert.archive import packed, unpacked
from data_gen.convert.contents import Contents
from data_gen.convert.losses import Losses

SUFFIX = ".array_record"
TASKS_OF_A_SHARD = 2048


def write(
    target: Path,
    tasks: Iterable[Contents],
    losses: Losses,
    *,
    shard_tasks: int = TASKS_OF_A_SHARD,
) -> int:
  partial = new_folder(target)
  try:
    partial.mkdir(parents=True)
    count, shards = 0, []
    with room_for(target):
      for batch in _batches(tasks, shard_tasks):
        shards.append(partial / f"{len(shards)}{SUFFIX}")
        count += _write_shard(shards[-1], batch)
      for number, shard in enumerate(shards):
        name = f"tasks-{number:05d}-of-{len(shards):05d}{SUFFIX}"
        shard.rename(partial / name)
    partial.rename(target)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return count


def read(source: Path, losses: Losses) -> Iterator[Contents]:
  """The tasks of a folder of shards, or of one shard."""
  for shard in shards_of(source):
    with _opened(shard) as reader:
      for number in range(reader.num_records()):
        with _said_of(shard):
          record = reader.read([number])[0]
        yield unpacked(record, f"{shard}, record {number}")


@contextlib.contextmanager
def _opened(shard: Path) -> Iterator[Any]:
  """A reader; ArrayRecord says only when it is closed that a file is none."""
  with _said_of(shard):
    reader = ArrayRecordReader(str(shard))
    if not reader.ok():
      reader.close()
  try:
    yield reader
  finally:
    with _said_of(shard):
      reader.close()


@contextlib.contextmanager
def _said_of(shard: Path) -> Iterator[None]:
  """What ArrayRecord raises, as what is wrong with `shard`."""
  try:
    yield
  except (ValueError, RuntimeError, IndexError) as error:
    raise UserError(f"{shard} can't be read or written: {error}") from None


def shards_of(source: Path) -> list[Path]:
  if source.is_file():
    return [source]
  shards = sorted(source.glob(f"*{SUFFIX}"))
  ends = {shard.name.rpartition("-of-")[2].removesuffix(SUFFIX) for shard in shards}
  if len(ends) != 1 or not (end := ends.pop()).isdigit() or int(end) != len(shards):
    raise UserError(f"{source} has {len(shards)} shards, not the number in their names")
  return shards


def new_folder(target: Path) -> Path:
  """Where to write what becomes `target`, which must not hold anything yet."""
  target.parent.mkdir(parents=True, exist_ok=True)
  if target.is_dir() and not any(target.iterdir()):
    target.rmdir()
  if target.exists():
    raise UserError(f"{target} is there already: give a new folder, or remove it")
  partial = target.with_name(f".{target.name}.partial")
  shutil.rmtree(partial, ignore_errors=True)  # of one that was killed
  return partial


def _batches(tasks: Iterable[Contents], size: int) -> Iterator[Iterator[Contents]]:
  tasks = iter(tasks)
  for first in tasks:
    yield itertools.chain([first], itertools.islice(tasks, size - 1))


def _write_shard(path: Path, tasks: Iterable[Contents]) -> int:
  count = 0
  with _said_of(path):
    writer = ArrayRecordWriter(str(path), "group_size:1,zstd")
  try:
    for contents in tasks:
      with _said_of(path):
        writer.write(packed(contents))
      count += 1
  finally:
    with _said_of(path):
      writer.close()
  return count
