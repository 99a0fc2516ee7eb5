"""The formats by name, and the way from one to another.

`detect` says what a path holds; what a target becomes is said by its name, or
by `form`. `convert` carries task after task, so a set of any size fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from clawgym_jax import cli
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import SPLITS, list_tasks
from data_gen.convert import (
    archive,
    arrayrecord,
    card,
    clawgym_jsonl,
    clawgym_rl,
    harbor,
    native,
)
from data_gen.convert.contents import Contents
from data_gen.convert.losses import Losses

Reader = Callable[[Path, Losses], Iterator[Contents]]
Writer = Callable[[Path, Iterable[Contents], Losses], int]


@dataclass(frozen=True)
class Format:
  """One format.

  Attributes:
    said: what it is, for messages.
    file: how the name of a target ends that is a file, "" for a folder.
    foreign: `read` takes the split that its tasks are for, as a third.
    tells: `write` takes where the tasks come from, too, to tell what is known there.
  """

  said: str
  read: Callable[..., Iterator[Contents]] | None
  write: Writer
  file: str = ""
  foreign: bool = False
  tells: bool = False


def _read_tfds(source: Path, losses: Losses) -> Iterator[Contents]:
  from data_gen.convert import tfds  # seconds to import

  return tfds.read(source, losses)


def _write_tfds(target: Path, tasks: Iterable[Contents], losses: Losses) -> int:
  from data_gen.convert import tfds  # seconds to import

  return tfds.write(target, tasks, losses)


FORMATS = {
    "native": Format("a folder of tasks", native.read, native.write),
    "tar": Format("a .tar of them", archive.read, archive.write, ".tar"),
    "arrayrecord": Format(
        "a folder of ArrayRecord shards", arrayrecord.read, arrayrecord.write
    ),
    "tfds": Format("a data_dir of TensorFlow Datasets", _read_tfds, _write_tfds),
    clawgym_jsonl.SET: Format(
        "ClawGym's .jsonl", clawgym_jsonl.read_set, clawgym_jsonl.write_set,
        ".jsonl", True,
    ),
    clawgym_jsonl.SKILL: Format(
        "ClawGym's skill2task .jsonl", clawgym_jsonl.read_skill,
        clawgym_jsonl.write_skill, ".jsonl", True,
    ),
    clawgym_rl.FORM: Format(
        "ClawGym's RL directories", clawgym_rl.read, clawgym_rl.write, foreign=True
    ),
    harbor.FORM: Format(
        "Harbor task directories", harbor.read, harbor.write, foreign=True
    ),
    "card": Format("a dataset card", None, card.write, "README.md", tells=True),
}  # fmt: skip


def detect(source: Path) -> str:
  """The name of the format of what is at `source`."""
  if not source.exists():
    raise UserError(f"--from={source} does not exist")
  if source.is_file():
    if source.name.endswith((".tar", ".tar.gz", ".tgz")):
      return "tar"
    if source.name.endswith(arrayrecord.SUFFIX):
      return "arrayrecord"
    if source.suffix == ".jsonl":
      return _kind_of_lines(source)
  elif any(source.glob("*/dataset_info.json")) or any(
      source.glob("*/*/dataset_info.json")
  ) or (source / "dataset_info.json").is_file():
    return "tfds"
  elif any(source.glob(f"*{arrayrecord.SUFFIX}")):
    return "arrayrecord"
  elif list_tasks(source):
    return "native"
  elif clawgym_rl.directories(source):
    return clawgym_rl.FORM
  elif harbor.directories(source):
    return harbor.FORM
  readable = [form.said for form in FORMATS.values() if form.read]
  raise UserError(f"{source} holds no tasks: there is {'; '.join(readable)}")


def convert(
    source: Path, target: Path, form: str = "", split: str = SPLITS[0]
) -> tuple[dict[str, Any], Losses]:
  """Writes the tasks of `source` to `target`; the counts, and what was lost."""
  name = detect(source)
  form = form or _meant(target)
  if FORMATS[form].file and not target.name.endswith(FORMATS[form].file):
    raise UserError(f"--to={target}: {FORMATS[form].said} ends with"
                    f" {FORMATS[form].file}")  # fmt: skip
  losses = Losses()
  read = FORMATS[name].read
  if FORMATS[name].foreign:
    read = partial(read, split=split)
  count = 0
  total = len(list_tasks(source)) if name == "native" else 0

  names: set[str] = set()

  def passing() -> Iterator[Contents]:
    nonlocal count
    for contents in read(source, losses):
      if contents.name in names:
        losses.leave_out(contents.name, "another task before it has its name")
        continue
      names.add(contents.name)
      yield contents
      count += 1
      bar.update()

  write = FORMATS[form].write
  if FORMATS[form].tells:
    write = partial(write, source=source)
  bar = cli.progress(total, f"{name} to {form}", unit="task")
  try:
    new = write(target, passing(), losses)
  finally:
    bar.close()
  summary = {
      "tasks": count,
      "new": new,
      "from": str(source),
      "to": str(target),
      "formats": [name, form],
      **losses.counts(),
  }
  return summary, losses


def _meant(target: Path) -> str:
  """The format that the name of a target asks for."""
  if target.name == "README.md":
    return "card"
  if target.name.endswith(".tar"):
    return "tar"
  if target.suffix == ".jsonl":
    return clawgym_jsonl.SET
  if not target.suffix or target.is_dir():
    return "native"
  raise UserError(
      f"can't tell what --to={target} should be: give a folder, a .tar, a .jsonl or"
      f" README.md, and --format as one of {', '.join(FORMATS)}"
  )


def _kind_of_lines(source: Path) -> str:
  with open(source, "rb") as file:
    for raw in file:
      try:
        line = json_text.parse(raw)
      except ValueError:
        continue
      if isinstance(line, dict) and "reward_files" in line:
        return clawgym_jsonl.SKILL
      return clawgym_jsonl.SET
  raise UserError(f"{source} holds no line of JSON")
