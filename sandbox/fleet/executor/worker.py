"""A worker process: it makes the jobs that come on its channel, all at once.

What goes over the channel is `frame`s: (number, job) starts a job, (number,
None) gives it up, (number, result) is its end, and (0, None) from the worker
says every few seconds that it lives. The worker ends when its channel does,
after it has stopped its sandboxes; when its parent dies the kernel kills it,
and its sandboxes with it. Signals of a terminal are for the parent to answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
import socket
import struct
from typing import Any

from clawgym_jax import tethered
from sandbox.fleet.executor.base import unseen, unsent
from sandbox.fleet.job import Job, TaskUnseen, make
from sandbox.verify import Verifiers

BEAT_SECONDS = 5.0

_SIZE = struct.Struct("!Q")


def frame(number: int, value: Any) -> bytes:
  """What is sent; raises whatever pickle does for a value that can't be."""
  data = pickle.dumps((number, value), protocol=pickle.HIGHEST_PROTOCOL)
  return _SIZE.pack(len(data)) + data


async def receive(reader: asyncio.StreamReader) -> tuple[int, Any]:
  """The next frame; `asyncio.IncompleteReadError` or OSError at the end."""
  (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
  return pickle.loads(await reader.readexactly(size))


def main(channel: socket.socket, parent: int) -> None:
  """The whole life of a worker process."""
  tethered.tie(parent, signal.SIGKILL)
  for number in (signal.SIGINT, signal.SIGTERM):
    # Not ignored: what a sandbox starts would inherit that.
    signal.signal(number, lambda *_: None)
  signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
  asyncio.run(_serve(channel))


async def _serve(channel: socket.socket) -> None:
  reader, writer = await asyncio.open_unix_connection(sock=channel)
  sending = asyncio.Lock()
  jobs: dict[int, asyncio.Task[None]] = {}
  verifiers = Verifiers()

  async def send(data: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody is there: the channel has ended
      async with sending:
        writer.write(data)
        await writer.drain()

  async def beat() -> None:
    while True:
      await send(frame(0, None))
      await asyncio.sleep(BEAT_SECONDS)

  async def one(number: int, job: Job) -> None:
    try:
      result = await make(job, verifiers)
    except TaskUnseen as error:
      result = unseen(error)
    try:
      data = frame(number, result)
    except Exception as error:  # pickle raises anything
      data = frame(number, unsent("the result", error))
    await send(data)

  jobs[0] = asyncio.create_task(beat())
  with contextlib.suppress(asyncio.IncompleteReadError, OSError):
    while True:
      number, job = await receive(reader)
      if job is not None:
        jobs[number] = asyncio.create_task(one(number, job))
        jobs[number].add_done_callback(lambda _, number=number: jobs.pop(number))
      elif number in jobs:
        jobs[number].cancel()
  running = list(jobs.values())
  for task in running:
    task.cancel()
  await asyncio.gather(*running, return_exceptions=True)
  await verifiers.close()
  writer.close()
