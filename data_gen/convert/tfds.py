"""A TensorFlow Datasets folder in ArrayRecord files; needs no TensorFlow.

`tfds.data_source("clawgym_syndata", split="train", data_dir=FOLDER)` reads it,
and so does `tfds.builder_from_directory`. What one chooses tasks by are
features of their own; `task` is the tar of the task's directory, all of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import SPLITS
from data_gen.convert.archive import packed, unpacked
from data_gen.convert.arrayrecord import new_folder
from data_gen.convert.contents import Contents
from data_gen.convert.losses import Losses

NAME = "clawgym_syndata"
VERSION = "1.0.0"
_TEXTS = ("id", "family", "split", "category", "macro_category", "hazard")


class ClawgymSyndata(tfds.core.GeneratorBasedBuilder):
  """Tasks for personal agents, by split, in the order in which they come."""

  name = NAME
  VERSION = tfds.core.Version(VERSION)

  def __init__(self, *, tasks: dict[str, Iterable[Contents]], **settings: Any):
    self._tasks = tasks
    super().__init__(file_format="array_record", **settings)

  def _info(self) -> tfds.core.DatasetInfo:
    text, texts = tfds.features.Text, tfds.features.Sequence(tfds.features.Text())
    features = {name: text() for name in _TEXTS} | {
        "instruction": texts,
        "operations": texts,
        "skills": texts,
        "difficulty": np.int64,
        "task": np.object_,
    }
    return tfds.core.DatasetInfo(
        builder=self,
        description="Verifiable tasks for agents that work on files with tools.",
        features=tfds.features.FeaturesDict(features),
        disable_shuffling=True,
    )

  def _split_generators(self, download_manager: Any) -> dict[str, Any]:
    return {split: self._generate_examples(t) for split, t in self._tasks.items()}

  def _generate_examples(
      self, tasks: Iterable[Contents]
  ) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, contents in enumerate(tasks):
      yield number, _example(contents)


def write(target: Path, tasks: Iterable[Contents], losses: Losses) -> int:
  """The dataset below `target`, a data_dir of TFDS, which must be new."""
  partial = new_folder(target)
  spool = partial / "spool"
  try:
    count = _spool(spool, tasks)
    tfds.disable_progress_bar()
    builder = ClawgymSyndata(
        tasks={
            split: _spooled(spool / split)
            for split in SPLITS
            if (spool / split).is_dir()
        },
        data_dir=partial,
    )
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(register_checksums=False)
    )
    shutil.rmtree(spool)
    partial.rename(target)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return count


def read(source: Path, losses: Losses) -> Iterator[Contents]:
  """The tasks of every split of a data_dir, or of a dataset's own folder."""
  folder = folder_of(source)
  builder = tfds.builder_from_directory(folder)
  for split in builder.info.splits:
    data = builder.as_data_source(split=split)
    if "task" not in builder.info.features:
      raise UserError(f"{folder} is a dataset, but not of tasks: it has no `task`")
    for number in range(len(data)):
      yield unpacked(data[number]["task"], f"{folder}, {split} {number}")


def folder_of(source: Path) -> Path | None:
  """The folder with dataset_info.json, `source` itself or below it."""
  found = sorted(source.glob(f"{NAME}/*/dataset_info.json"))
  own = source / "dataset_info.json"
  return own.parent if own.is_file() else found[-1].parent if found else None


def _example(contents: Contents) -> dict[str, Any]:
  record = contents.record
  said = [record["instruction"]]
  said += [turn["text"] for turn in record.get("followups", ())]
  return {
      **{name: record.get(name, "") for name in _TEXTS},
      "instruction": said,
      "operations": record["operations"],
      "skills": record.get("skills", []),
      "difficulty": record.get("difficulty", 1),
      "task": packed(contents),
  }


def _spool(folder: Path, tasks: Iterable[Contents]) -> int:
  """Keeps packed tasks by split: TFDS writes one split after the other."""
  count = 0
  for contents in tasks:
    path = folder / contents.record["split"] / f"{count:08d}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed(contents))
    count += 1
  return count


def _spooled(folder: Path) -> Iterator[Contents]:
  for path in sorted(folder.iterdir()):
    yield unpacked(path.read_bytes(), str(path))
