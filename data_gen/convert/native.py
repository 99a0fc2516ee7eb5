"""Our own task directories. A task that is there already is left alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from clawgym_jax.contracts.task import list_tasks
from data_gen.convert.contents import Contents, place
from data_gen.convert.contents import read as read_task
from data_gen.convert.losses import Losses


def write(target: Path, tasks: Iterable[Contents], losses: Losses) -> int:
  return sum(place(target, contents) for contents in tasks)


def read(source: Path, losses: Losses) -> Iterator[Contents]:
  for directory in list_tasks(source):
    yield read_task(directory)
