"""One attempt to be made, as plain values, and the making of it anywhere.

A job goes where its maker is: into a coroutine, a process, another host. A
maker that can't see the task's directory, or sees another task there, raises
`TaskUnseen`; it gets the job again with the directory's files, which it
unpacks into a folder of its own and removes with the attempt. `sandbox.reap`
finds those of the dead by their label.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import Task, load_task
from clawgym_jax.contracts.trajectory import unscored
from sandbox.backends.labels import run_directory
from sandbox.fleet.attempt import AttemptResult, safe_attempt
from sandbox.harnesses import load
from sandbox.verify import Verifiers


class TaskUnseen(Exception):
  """The task's directory is not here, or what is here is another task."""


@dataclass(frozen=True)
class Job:
  """One attempt to make.

  Attributes:
    task: as its driver loaded it; `root` is where the driver sees it.
    digest: of its task.json, by which a maker knows that it sees the same.
    harness: a name that `sandbox.harnesses.load` knows.
    files: the task's directory, where the maker can't see it; see `packed`.
  """

  task: Task
  digest: str
  harness: str
  base_url: str = ""
  api_key: str = field(default="", repr=False)
  model: str = "policy"
  turns: int | None = None
  run_id: str = "run"
  backend: str = "bubblewrap"
  files: bytes | None = field(default=None, repr=False)


def job_of(directory: Path, harness: str) -> Job:
  """A job for the task in `directory`; raises as `load_task` does, or OSError."""
  return Job(load_task(directory), _digest(directory), harness)


def packed(job: Job) -> Job:
  """`job` with the files of its task; `TaskUnseen` where this process has them not."""
  buffer = io.BytesIO()
  with _seen(job) as task:
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
      tar.add(task.root, arcname=".")
  return replace(job, files=buffer.getvalue())


async def make(job: Job, verifiers: Verifiers) -> AttemptResult:
  """Makes the attempt, here and now, judged by `verifiers`; raises only `TaskUnseen`."""
  try:
    with _seen(job) as task:
      return await safe_attempt(
          task,
          load(job.harness),
          base_url=job.base_url,
          api_key=job.api_key,
          model=job.model,
          turns=job.turns,
          run_id=job.run_id,
          backend=job.backend,
          verifiers=verifiers,
      )
  except (OSError, UserError) as error:  # no room to unpack, no such harness
    return AttemptResult(unscored(f"internal_error: {type(error).__name__}: {error}"))


@contextlib.contextmanager
def _seen(job: Job) -> Iterator[Task]:
  """The job's task with a root that this process sees."""
  if job.files is None:
    try:
      same = _digest(job.task.root) == job.digest
    except OSError as error:
      raise TaskUnseen(f"{job.task.root} can't be read: {error.strerror}") from None
    if not same:
      raise TaskUnseen(f"{job.task.root} holds another task than it did")
    yield job.task
    return
  folder = run_directory(job.run_id)
  try:
    with tarfile.open(fileobj=io.BytesIO(job.files)) as tar:
      tar.extractall(folder, filter="data")
    yield replace(job.task, root=folder)
  finally:
    shutil.rmtree(folder, ignore_errors=True)


def _digest(directory: Path) -> str:
  return hashlib.sha256((directory / "task.json").read_bytes()).hexdigest()
