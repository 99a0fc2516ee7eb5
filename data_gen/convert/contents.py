"""A task in memory: the name and the files of its directory.

`read` and `place` check a task against its content hash, so what is read, and
what stands on the disk under a task's name, is whole. Links are refused: a
task of a stranger must not carry a file of whoever converts it.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError, require
from clawgym_jax.contracts.files import inside, room_for
from clawgym_jax.contracts.task import content_hash, intact, load_task
from sandbox.backends.base import Files


@dataclass(frozen=True)
class Contents:
  """`files` by path below the directory `name`, task.json among them."""

  name: str
  files: Files

  @property
  def record(self) -> dict[str, Any]:
    return json_text.parse(self.files["task.json"])

  def below(self, folder: str) -> Files:
    """The files of one folder, by path below it."""
    head = f"{folder}/"
    return {p[len(head) :]: d for p, d in self.files.items() if p.startswith(head)}


def read(directory: Path) -> Contents:
  """The task in `directory`; `RecordError` if it isn't as it was made."""
  check(directory)
  files: Files = {}
  for path in sorted(directory.rglob("*")):
    name = path.relative_to(directory).as_posix()
    require(not path.is_symlink(), f"{directory}: {name} is a link")
    if path.is_file():
      files[name] = path.read_bytes()
  return Contents(directory.name, files)


def check(directory: Path) -> None:
  if not intact(load_task(directory)):
    raise RecordError(f"{directory.name} was changed after it was made")


def place(folder: Path, contents: Contents) -> bool:
  """Puts the task below `folder`, whole or not at all; False if it is there."""
  require(
      inside(contents.name)
      and "/" not in contents.name
      and not contents.name.startswith("."),
      f"{contents.name!r} is no name for a task's directory",
  )
  final = folder / contents.name
  if final.exists():
    return False
  partial = folder / f".{contents.name}.partial"
  shutil.rmtree(partial, ignore_errors=True)  # of one that was killed
  try:
    with room_for(final):
      write_files(partial, contents.files)
      (partial / "workspace").mkdir(exist_ok=True)
      check(partial)
      partial.rename(final)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return True


def place_files(folder: Path, name: str, files: Files) -> bool:
  """The same for a task of another layout, which has nothing to be checked by."""
  require(inside(name) and "/" not in name, f"{name!r} is no name for a directory")
  final = folder / name
  if final.exists():
    return False
  partial = folder / f".{name}.partial"
  shutil.rmtree(partial, ignore_errors=True)  # of one that was killed
  try:
    with room_for(final):
      write_files(partial, files)
      partial.rename(final)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return True


def write_files(folder: Path, files: Files) -> None:
  """Scripts can be run, as in a sandbox."""
  folder.mkdir(parents=True)
  for name, data in files.items():
    require(inside(name), f"{name!r} leaves its folder")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if data.startswith(b"#!"):
      path.chmod(0o755)


def seal(name: str, record: dict[str, Any], files: Files) -> Contents:
  """A task made of these, with its content hash; `RecordError` if it is none."""
  with tempfile.TemporaryDirectory() as scratch:
    directory = Path(scratch) / "task"
    write_files(directory, files)
    (directory / "workspace").mkdir(exist_ok=True)
    sealed = {
        **record,
        "provenance": {
            **record["provenance"],
            "content_hash": content_hash(directory, record),
        },
    }
    text = json_text.dump(sealed, indent=1) + "\n"
    (directory / "task.json").write_text(text)
    load_task(directory)
  return Contents(name, {**files, "task.json": text.encode()})
