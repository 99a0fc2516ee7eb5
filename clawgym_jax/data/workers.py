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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from clawgym_jax.contracts.errors import UserError

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
    work: Callable[..., None], jobs: Iterable[Any], *given: Any, processes: int
) -> Iterator[None]:
  """Runs `work(*given, job)` for every job; yields once for each that is done.

  `work` and what it is given must pickle; `given` goes to a process once. With
  0 processes the caller's own does it. What `work` raises is raised here;
  `UserError` where a process was killed.
  """
  jobs = list(jobs)
  if not processes:
    for job in jobs:
      work(*given, job)
      yield
    return
  pool = ProcessPoolExecutor(
      min(processes, len(jobs)) or 1,
      mp_context=multiprocessing.get_context("spawn"),
      initializer=_begin,
      initargs=(os.getpid(), work, given),
  )
  with contextlib.ExitStack() as end:
    end.callback(pool.shutdown, wait=False, cancel_futures=True)
    try:
      for done in as_completed([pool.submit(_run, job) for job in jobs]):
        done.result()
        yield
    except BrokenProcessPool:
      raise UserError(
          "a helper process was killed, for want of memory if nobody did it: run the"
          " same command again, with fewer workers"
      ) from None


_job: tuple[Callable[..., None], tuple[Any, ...]] | None = None  # of a helper


def _begin(parent: int, work: Callable[..., None], given: tuple[Any, ...]) -> None:
  global _job
  follow(parent)
  _job = work, given


def _run(job: Any) -> None:
  work, given = _job
  work(*given, job)
