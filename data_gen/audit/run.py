"""Audits a whole folder as a command does: alone on it, with what is installed here.

What is judged and how is in `folder`; here are the lock, the sandboxes' check, the
model that compares meanings where there is one, and what a person is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.runs import only_writer
from data_gen import skills
from data_gen.audit import embedding
from data_gen.audit.folder import audit
from data_gen.audit.meaning import Vectors
from data_gen.audit.remembered import FILE, remembered
from data_gen.audit.report import printed
from data_gen.compose.make import rebuild
from sandbox.backends import check_backend
from sandbox.reap import reap


def audited(
    folder: Path,
    *,
    concurrency: int,
    backend: str = "bubblewrap",
    library: skills.Library | None = None,
    against: Path | None = None,
    embed: bool | None = None,
) -> dict[str, Any]:
  """Judges what is new in `folder`, prints what was found, and gives the counts.

  Args:
    library: the skills that the tasks were made with, if not ours.
    against: tasks whose requests must not come again.
    embed: whether to compare requests by meaning; None is where that is installed.

  `UserError` where a task is undecided: the same again decides it.
  """
  check_backend(backend, folder)
  reap()
  with only_writer(folder, "audit"), _vectors(folder, embed) as vectors:
    summary = asyncio.run(
        audit(
            folder,
            concurrency,
            backend,
            rebuild=functools.partial(rebuild, library=library),
            against=against,
            vectors=vectors,
        )
    )
  print(
      f"{summary['admitted']} admitted, {summary['rejected']} rejected,"
      f" {summary['already_rejected']} already rejected,"
      f" {summary['undecided']} undecided; see {folder / 'audit.json'}"
  )
  print(printed(summary["figures"]))
  for name, causes in sorted(summary["causes"].items()):
    print(f"  {name}: {'; '.join(causes)}")
  if summary["undecided"]:
    raise UserError("some tasks are undecided: run the same command again")
  return summary


@contextlib.contextmanager
def _vectors(folder: Path, embed: bool | None) -> Iterator[Vectors | None]:
  """What embeds the requests of `folder`, if anything is to."""
  if embed or (embed is None and embedding.installed()):
    with embedding.processes() as vectors:
      with remembered(folder / FILE, vectors) as kept:
        yield kept
    return
  if embed is None:
    print(f"requests are compared by their words alone: {embedding.HOW}")
  yield None
