"""Connections to 127.0.0.1 inside a sandbox, carried to a Unix socket outside.

The server inside accepts them; their bytes come and go in frames of the stream
it is spoken to on, so no backend binds anything of the host into a sandbox.
Each side may be at most a window ahead of what the other took, so that a slow
reader holds up its own connection alone and nobody's memory grows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from sandbox.backends import frames
from sandbox.backends.frames import Op

WINDOW = 1 << 18  # as in server.c
_CHUNK = 1 << 16


class Forwarding:
  """All forwarded connections of one sandbox.

  Args:
    ports: port inside -> Unix socket outside.
    send: takes a frame for the server; must not wait.
  """

  def __init__(self, ports: Mapping[int, Path], send: Callable[[bytes], None]):
    self._ports, self._send = ports, send
    self._connections: dict[int, _Connection] = {}

  def handle(self, op: Op, number: int, fields: list[bytes]) -> None:
    """Takes a frame about connection `number`; never waits."""
    if op is Op.OPENED:
      path = self._ports.get(frames.number(fields[0]))
      self._connections[number] = _Connection(number, path, self._send, self._close)
      return
    connection = self._connections.get(number)
    if connection is None:
      return
    if op is Op.CLOSED:
      del self._connections[number]
      connection.task.cancel()
    elif op is Op.ACK:
      connection.taken(frames.number(fields[0]))
    else:
      connection.arrived.put_nowait(fields[0] if op is Op.DATA else None)

  def _close(self, number: int) -> None:
    """Ends a connection whose other side is gone."""
    if self._connections.pop(number, None) is not None:
      self._send(frames.pack(number, Op.CLOSED))

  async def close(self) -> None:
    """Ends all connections."""
    tasks = [connection.task for connection in self._connections.values()]
    self._connections.clear()
    for task in tasks:
      task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Connection:
  """One connection; `arrived` holds bytes from inside, None at their end."""

  def __init__(
      self,
      number: int,
      path: Path | None,
      send: Callable[[bytes], None],
      close: Callable[[int], None],
  ):
    self._number, self._send, self._close = number, send, close
    self._ahead = 0
    self._room = asyncio.Event()
    self._room.set()
    self.arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
    self.task = asyncio.create_task(self._run(path))

  def taken(self, count: int) -> None:
    """The inside took `count` bytes more."""
    self._ahead -= count
    self._room.set()

  async def _run(self, path: Path | None) -> None:
    try:
      if path is None:
        raise ConnectionRefusedError
      reader, writer = await asyncio.open_unix_connection(path)
      with contextlib.closing(writer):
        async with asyncio.TaskGroup() as both:
          both.create_task(self._out(writer))
          both.create_task(self._in(reader))
    except* OSError:  # the outside is gone: so is the connection
      self._close(self._number)

  async def _out(self, writer: asyncio.StreamWriter) -> None:
    while (data := await self.arrived.get()) is not None:
      writer.write(data)
      await writer.drain()
      self._send(frames.pack(self._number, Op.ACK, len(data)))
    writer.write_eof()

  async def _in(self, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(_CHUNK):
      while self._ahead + len(data) > WINDOW:
        self._room.clear()
        await self._room.wait()
      self._ahead += len(data)
      self._send(frames.pack(self._number, Op.DATA, data))
    self._send(frames.pack(self._number, Op.END))
