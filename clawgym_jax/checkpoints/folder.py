"""A model folder appears whole or not at all.

It is written beside its name and then renamed, config.json last of its files:
a folder without one is a model to no reader. It is absent only between two
renames; what a kill leaves beside it, the next write ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import room_for

_PARTIAL, _OLD = ".partial-", ".old-"
_MARKS = {"config.json": "model_type", "adapter_config.json": "peft_type"}


@contextlib.contextmanager
def written(directory: str | Path) -> Iterator[Path]:
  """An empty folder that becomes `directory` if the block ends well.

  Where `directory` is a link, what it points to is replaced.

  Raises:
    UserError: something that is no model is there, or the disk is full.
  """
  directory = Path(directory).resolve()
  refuse_other(directory)
  directory.parent.mkdir(parents=True, exist_ok=True)
  _end_killed_write(directory)
  partial = _beside(directory, _PARTIAL)
  try:
    with room_for(directory):
      yield partial
      os.chmod(partial, 0o755)
      _replace(directory, partial)
  finally:
    shutil.rmtree(partial, ignore_errors=True)


def refuse_other(directory: Path) -> None:
  """`UserError` where `directory` is neither absent, nor empty, nor a model."""
  if not directory.exists():
    return
  if not directory.is_dir():
    raise UserError(f"{directory} is a file: give the name of a folder")
  if any(directory.iterdir()) and not is_model(directory):
    raise UserError(
        f"{directory} holds something that is not a model: give another folder"
    )


def sync(path: Path) -> None:
  """Returns once a file's bytes, or a folder's names, are on the disk."""
  handle = os.open(path, os.O_RDONLY)
  try:
    os.fsync(handle)
  finally:
    os.close(handle)


def is_model(directory: Path) -> bool:
  """Whether a folder holds a model or an adapter.

  Other programs keep a config.json too, beside work that must not be replaced.
  """
  return any(_says(directory / name, key) for name, key in _MARKS.items())


def _says(path: Path, key: str) -> bool:
  try:
    value = json_text.parse(path.read_bytes())
  except (OSError, ValueError):
    return False
  return isinstance(value, dict) and key in value


def _replace(directory: Path, partial: Path) -> None:
  """Puts `partial` in the place of `directory`."""
  before = None
  if directory.exists():
    before = _beside(directory, _OLD)
    os.rename(directory, before)
  os.rename(partial, directory)
  sync(directory.parent)
  if before is not None:
    shutil.rmtree(before)


def _beside(directory: Path, kind: str) -> Path:
  prefix = f".{directory.name}{kind}"
  return Path(tempfile.mkdtemp(dir=directory.parent, prefix=prefix))


def _end_killed_write(directory: Path) -> None:
  """Puts back the model that a killed write had moved away, and removes the rest."""
  # What `tempfile` appends: the write of a model `a.old-b` is not one of `a`.
  left = re.compile(rf"\.{re.escape(directory.name)}({_PARTIAL}|{_OLD})[a-z0-9_]{{8}}")
  for path in list(directory.parent.iterdir()):
    match = left.fullmatch(path.name)
    if match is None:
      continue
    if match[1] == _OLD and not directory.exists() and is_model(path):
      os.rename(path, directory)
    else:
      shutil.rmtree(path)
