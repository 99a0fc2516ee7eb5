"""Attempts on this machine: in this process, or in spawned worker processes.

A worker that dies, or says nothing for a minute, fails the jobs it had and is
replaced when the next one comes. Workers are spawned, never forked.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import signal
import socket
from multiprocessing import resource_tracker

from sandbox.fleet.attempt import AttemptResult
from sandbox.fleet.executor import worker
from sandbox.fleet.executor.base import Executor, WorkerLost, unseen, unsent
from sandbox.fleet.job import Job, TaskUnseen, make
from sandbox.verify import Verifiers

_SILENT_SECONDS = 20.0  # three times in a row, or a stopped parent would be one
_SILENT_TIMES = 3
_END_SECONDS = 20.0


class InProcess(Executor):
  """Every attempt is made in this process, whose end is theirs."""

  def __init__(self) -> None:
    self._verifiers = Verifiers()

  async def __aexit__(self, *exception: object) -> None:
    await self._verifiers.close()

  async def run(self, job: Job, *, alone: bool = False) -> AttemptResult:
    try:
      return await make(job, self._verifiers)
    except TaskUnseen as error:
      return unseen(error)


class Processes(Executor):
  """`count` worker processes; a job goes to the one that has the fewest."""

  def __init__(self, count: int) -> None:
    self._count = count
    self._workers: list[_Worker] = []

  async def __aexit__(self, *exception: object) -> None:
    await asyncio.gather(*(each.close() for each in self._workers))

  async def run(self, job: Job, *, alone: bool = False) -> AttemptResult:
    try:
      chosen = _Worker() if alone else self._least_loaded()
    except OSError as error:
      raise WorkerLost(f"a worker process can't be started: {error}") from None
    try:
      return await chosen.run(job)
    finally:
      if alone:
        await chosen.close()

  def _least_loaded(self) -> _Worker:
    self._workers = [each for each in self._workers if not each.ended]
    living = [each for each in self._workers if each.lost is None]
    least = min(living, key=lambda each: each.load, default=None)
    if least is None or (least.load and len(living) < self._count):
      least = _Worker()
      self._workers.append(least)
    return least


class _Worker:
  """A worker process, as its parent sees it. `lost` says how it ended, if it has."""

  def __init__(self) -> None:
    self.lost: str | None = None
    self._numbers = itertools.count(1)
    self._waiting: dict[int, asyncio.Future[AttemptResult]] = {}
    ours, theirs = socket.socketpair()
    context = multiprocessing.get_context("spawn")
    self._process = context.Process(
        target=worker.main, args=(theirs, os.getpid()), name="attempts", daemon=True
    )
    resource_tracker.ensure_running()  # it would unblock the signals
    # A worker that is still being loaded must not be ended by a terminal's Ctrl-C.
    blocked = signal.pthread_sigmask(
        signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM)
    )
    try:
      self._process.start()
    except OSError:
      ours.close()
      raise
    finally:
      signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
      theirs.close()
    self._connection = asyncio.create_task(asyncio.open_unix_connection(sock=ours))
    self._listening = asyncio.create_task(self._listen())

  @property
  def load(self) -> int:
    return len(self._waiting)

  @property
  def ended(self) -> bool:
    """Whether the process is gone and everybody knows."""
    return self._listening.done()

  async def run(self, job: Job) -> AttemptResult:
    number = next(self._numbers)
    try:
      data = worker.frame(number, job)
    except Exception as error:  # pickle raises anything
      return unsent("the job", error)
    future = asyncio.get_running_loop().create_future()
    self._waiting[number] = future
    try:
      _, writer = await asyncio.shield(self._connection)
      if self.lost is not None:
        raise WorkerLost(self.lost)
      writer.write(data)
      try:
        return await future
      except asyncio.CancelledError:
        writer.write(worker.frame(number, None))
        raise
    finally:
      del self._waiting[number]

  async def close(self) -> None:
    """Ends the process in order, or after a while at once."""
    _, writer = await asyncio.shield(self._connection)
    self.lost = self.lost or "it was ended"
    writer.close()
    await self._listening

  async def _listen(self) -> None:
    reader, writer = await asyncio.shield(self._connection)
    fault = None
    try:
      fault = await self._pass_on(reader)
    except (asyncio.IncompleteReadError, OSError):
      pass  # it ended
    except Exception as error:  # pickle raises anything
      fault = f"sent what can't be read: {type(error).__name__}: {error}"
    self.lost = self.lost or "a worker process ended"  # nothing new for it
    if fault is not None:
      self._process.kill()
    writer.close()
    await asyncio.to_thread(self._end)
    code = self._process.exitcode
    if fault is not None:
      self.lost = f"a worker process {fault}"
    elif code < 0:
      self.lost = f"a worker process was ended by {signal.Signals(-code).name}"
    else:
      self.lost = f"a worker process ended with status {code}"
    for future in self._waiting.values():
      if not future.done():
        future.set_exception(WorkerLost(self.lost))
        future.exception()  # one that was given up has nobody to fetch it

  async def _pass_on(self, reader: asyncio.StreamReader) -> str:
    """Hands out results until the worker is silent; then says so."""
    silent = 0
    reading = asyncio.create_task(worker.receive(reader))
    try:
      while silent < _SILENT_TIMES:
        # Never cancelled in the middle: half a frame must not be lost.
        done, _ = await asyncio.wait({reading}, timeout=_SILENT_SECONDS)
        if not done:
          silent += 1
          continue
        silent = 0
        number, result = reading.result()
        reading = asyncio.create_task(worker.receive(reader))
        future = self._waiting.get(number)
        if future is not None and not future.done():
          future.set_result(result)
    finally:
      reading.cancel()
    return f"said nothing for {silent * _SILENT_SECONDS:g} s"

  def _end(self) -> None:
    self._process.join(_END_SECONDS)
    if self._process.exitcode is None:
      self._process.kill()
      self._process.join()
