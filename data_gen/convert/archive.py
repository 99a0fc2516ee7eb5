"""Tasks as a tar file, and one task as the bytes of a tar of its directory.

The same tasks give the same bytes: no times, no owners. A task is written as
it comes, so a set of any size needs the memory of one task.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_atomic
from data_gen.convert.contents import Contents
from data_gen.convert.losses import Losses

_END = bytes(2 * tarfile.BLOCKSIZE)


def write(target: Path, tasks: Iterable[Contents], losses: Losses) -> int:
  count = 0

  def blocks() -> Iterator[bytes]:
    nonlocal count
    for contents in tasks:
      yield from _members(contents)
      count += 1
    yield _END

  write_atomic(target, blocks())
  return count


def read(source: Path, losses: Losses) -> Iterator[Contents]:
  try:
    with tarfile.open(source) as archive:
      yield from _tasks(archive, source)
  except (tarfile.TarError, EOFError) as error:
    raise UserError(f"{source} can't be unpacked: {error}") from None


def packed(contents: Contents) -> bytes:
  """A tar of this one task."""
  return b"".join([*_members(contents), _END])


def unpacked(record: bytes, where: str) -> Contents:
  """The one task of a tar."""
  try:
    with tarfile.open(fileobj=io.BytesIO(record)) as archive:
      tasks = list(_tasks(archive, where))
  except (tarfile.TarError, EOFError) as error:
    raise UserError(f"{where} holds no packed task: {error}") from None
  if len(tasks) != 1:
    raise UserError(f"{where} holds {len(tasks)} tasks where one belongs")
  return tasks[0]


def _members(contents: Contents) -> Iterator[bytes]:
  for path, data in sorted(contents.files.items()):
    member = tarfile.TarInfo(f"{contents.name}/{path}")
    member.size, member.mode = len(data), 0o644
    yield _header(member)
    yield data + bytes(-len(data) % tarfile.BLOCKSIZE)
  if not contents.below("workspace"):  # no file stands for it
    member = tarfile.TarInfo(f"{contents.name}/workspace")
    member.type, member.mode = tarfile.DIRTYPE, 0o755
    yield _header(member)


def _header(member: tarfile.TarInfo) -> bytes:
  return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _tasks(archive: tarfile.TarFile, where: Path | str) -> Iterator[Contents]:
  found: dict[str, list[tarfile.TarInfo]] = {}
  for member in archive.getmembers():
    name, _, path = member.name.removeprefix("./").partition("/")
    if member.isdir():
      continue
    if not member.isfile() or not path:
      raise UserError(f"{where}: {member.name} is no file of a task")
    found.setdefault(name, []).append(member)
  if not found:
    raise UserError(f"{where} holds no tasks")
  for name, members in found.items():
    files = {}
    for member in members:
      path = member.name.removeprefix("./").partition("/")[2]
      files[path] = archive.extractfile(member).read()
    if "task.json" not in files:
      raise UserError(f"{where}: {name} is no task: it has no task.json")
    yield Contents(name, files)
