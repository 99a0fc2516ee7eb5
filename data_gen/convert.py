"""A folder of tasks as one .tar file, and back.

The same tasks give the same bytes. Unpacking checks each task against its
content hash and puts it under its name only when it is whole; tasks that are
there already are left alone. Other formats are refused.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.files import write_atomic
from clawgym_jax.contracts.task import content_hash, list_tasks, load_task

_FROM = flags.DEFINE_string("from", None, "A folder of tasks, or a .tar of them.")
_TO = flags.DEFINE_string("to", None, "A .tar file, or a folder.")


def pack(folder: Path, target: Path) -> int:
  """Writes every task of `folder` to the tar file `target`; how many."""
  tasks = list_tasks(folder)
  if not tasks:
    raise UserError(f"{folder} holds no tasks")
  buffer = io.BytesIO()
  with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
    for directory in tasks:
      _check(directory)
      for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        data = path.read_bytes()
        member = tarfile.TarInfo(path.relative_to(folder).as_posix())
        member.size, member.mode = len(data), 0o644
        archive.addfile(member, io.BytesIO(data))
      if not any((directory / "workspace").iterdir()):  # no file stands for it
        member = tarfile.TarInfo(f"{directory.name}/workspace")
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(member)
  write_atomic(target, buffer.getvalue())
  return len(tasks)


def unpack(source: Path, folder: Path) -> int:
  """Puts every task of the tar file `source` below `folder`; how many are new."""
  partial = folder / f".unpack.{os.getpid()}"
  new = 0
  try:
    partial.mkdir(parents=True)
    try:
      with tarfile.open(source) as archive:
        archive.extractall(partial, filter="data")
    except (tarfile.TarError, OSError) as error:
      raise UserError(f"{source} can't be unpacked: {error}") from None
    tasks = list_tasks(partial)
    if not tasks:
      raise UserError(f"{source} holds no tasks")
    for directory in tasks:
      _check(directory)
    for directory in tasks:
      if not (folder / directory.name).exists():
        directory.rename(folder / directory.name)
        new += 1
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return new


def _check(directory: Path) -> None:
  task = load_task(directory)
  raw = json_text.parse((directory / "task.json").read_text())
  if content_hash(directory, raw) != task.provenance.get("content_hash"):
    raise RecordError(f"{directory.name} was changed after it was made")


def main() -> dict[str, Any]:
  if not _FROM.value or not _TO.value:
    raise UserError("--from and --to are needed: one a folder of tasks, one a .tar file")
  source, target = Path(_FROM.value), Path(_TO.value)
  if not source.exists():
    raise UserError(f"--from={source} does not exist")
  if source.is_dir() and target.suffix == ".tar":
    count = pack(source, target)
  elif source.suffix == ".tar" and not target.suffix:
    count = unpack(source, target)
  else:
    raise UserError(
        f"can't convert {source} to {target}: only a folder of tasks to a .tar file"
        " and back is built in so far"
    )
  print(f"{count} tasks: {source} -> {target}")
  return {"tasks": count, "from": str(source), "to": str(target)}


if __name__ == "__main__":
  cli.run(main)
