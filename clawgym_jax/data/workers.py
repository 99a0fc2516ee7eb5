"""Processes that help this one: spawned, and gone soon after it, kill -9 included.

jax must not be forked, so every helper is a fresh interpreter. It follows its
parent by looking: the kernel's own way (`clawgym_jax.tethered`) would end it with
the thread that started it, and Grain starts its workers in threads that end.
Ctrl-C is the parent's to answer.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from clawgym_jax.contracts.errors import UserError

J, T = TypeVar("J"), TypeVar("T")

_LOOK_SECONDS = 0.5


def follow(parent: int) -> None:
  """Ends this process when process `parent` is no longer its parent."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  threading.Thread(target=_look, args=(parent,), daemon=True).start()


def _look(parent: int) -> None:
  while os.getppid() == parent:
    time.sleep(_LOOK_SECONDS)
  os._exit(1)


def each(
    work: Callable[..., T], jobs: Collection[J], *given: Any, processes: int
) -> Iterator[tuple[J, T]]:
  """Runs `work(*given, job)` for every job; yields each with its result, when done.

  `work` and what it is given must pickle; `given` goes to a process once. The
  caller's own does it where `processes` is 0, and a single job, since a helper
  would take longer to start. What `work` raises is raised here; `UserError` where a
  process was killed.
  """
  if not processes or len(jobs) < 2:
    for job in jobs:
      yield job, work(*given, job)
    return
  pool = ProcessPoolExecutor(
      min(processes, len(jobs)),
      mp_context=multiprocessing.get_context("spawn"),
      initializer=_begin,
      initargs=(os.getpid(), work, given),
  )
  with contextlib.ExitStack() as end:
    end.callback(pool.shutdown, wait=False, cancel_futures=True)
    try:
      futures = {pool.submit(_run, job): job for job in jobs}
      for done in as_completed(futures):
        yield futures[done], done.result()
    except BrokenProcessPool:
      raise UserError(
          "a helper process was killed, for want of memory if nobody did it: run the"
          " same command again, with fewer workers"
      ) from None


_task: tuple[Callable[..., Any], tuple[Any, ...]] | None = None  # of a helper


def _begin(parent: int, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
  global _task
  follow(parent)
  _task = work, given


def _run(job: Any) -> Any:
  work, given = _task
  return work(*given, job)
