"""A sandbox whose process 1 is our server, spoken to over one byte stream.

Every backend that can start a process with a stream to it (a pipe, an attached
container, a websocket) is a `ServedSandbox`: it says how to connect and how to
end, and what is said on the stream is the same for all. Answers come within
the call's time and the grace, or the sandbox is lost, and lost stays lost.
"""

from __future__ import annotations

import abc
import asyncio
import itertools
import json
import struct
from pathlib import Path
from typing import Any, Protocol, Self

from sandbox.backends import base
from sandbox.backends.base import Bounds, ExecResult, SandboxError, SandboxLost

_HEADER = struct.Struct("!IQ")


class Reader(Protocol):
  """What comes from the server; `asyncio.StreamReader` is one."""

  async def readexactly(self, count: int) -> bytes:
    """`count` bytes, or `asyncio.IncompleteReadError` at the end."""


class Writer(Protocol):
  """What goes to the server; `asyncio.StreamWriter` is one."""

  def write(self, data: bytes) -> None: ...

  async def drain(self) -> None: ...


class ServedSandbox(base.Sandbox):
  """See the module's docstring.

  Args:
    bounds: limits.
    run_id: names the run that owns this sandbox; letters, digits, - and _.
    now: the value of CLAWGYM_NOW inside.
    folders: writable directories besides /workspace and /tmp, such as /checks.
    forward: port on 127.0.0.1 inside -> Unix socket outside that answers there.
  """

  def __init__(
      self,
      *,
      bounds: Bounds = Bounds(),
      run_id: str = "run",
      now: str = "",
      folders: tuple[str, ...] = (),
      forward: dict[int, Path] = {},
  ):
    self._settings = dict(
        bounds=bounds, run_id=run_id, now=now, folders=folders, forward=forward
    )
    self.reports: list[dict] = []
    self.limits: dict[str, str] = {}
    self._bounds = bounds
    self._initial: base.Files = {}
    self._ids = itertools.count(1)
    self._waiting: dict[int, asyncio.Future] = {}
    self._parts: dict[int, list[bytes]] = {}
    self._lost: str | None = None
    self._answered = False  # the server is up
    self._writer: Writer | None = None
    self._reading: asyncio.Task | None = None

  @abc.abstractmethod
  async def _connect(self) -> tuple[Reader, Writer]:
    """Starts the server; gives the streams from and to it."""

  @abc.abstractmethod
  async def _disconnect(self) -> None:
    """Kills everything in the sandbox and waits for it; may be called at any
    point, also when `_connect` was cancelled; never raises."""

  async def _last_words(self) -> str:
    """What the sandbox said when it ended, for the message; empty if nothing."""
    return ""

  async def start(self, files: base.Files | Path = {}) -> Self:
    self._initial = base.gather(files)
    try:
      async with asyncio.timeout(self._bounds.boot_seconds):
        reader, self._writer = await self._connect()
        ready = asyncio.get_running_loop().create_future()
        self._waiting[0] = ready
        self._reading = asyncio.create_task(self._read_frames(reader))
        await ready
        self._answered = True
        if self._initial:
          await self.restore(base.pack(self._initial))
    except TimeoutError:
      await self.stop()
      raise SandboxLost(
          f"the sandbox did not start within {self._bounds.boot_seconds:.0f} s"
      ) from None
    except BaseException:
      await self.stop()
      raise
    return self

  async def exec(self, command: str, timeout: float = 60.0) -> ExecResult:
    answer, body = await self._request(
        {"op": "exec", "command": command.replace("\0", ""), "timeout": timeout},
        seconds=timeout,
    )
    head, tail = body[: answer["head"]], body[answer["head"] :]
    if answer["left_out"]:
      head += f"\n[… {answer['left_out']} bytes left out …]\n".encode()
    return ExecResult(
        output=(head + tail).decode(errors="replace"),
        exit_code=answer["exit_code"],
        timed_out=answer["timed_out"],
        out_of_memory=answer["out_of_memory"],
        output_bytes=answer["output_bytes"],
        seconds=answer["seconds"],
    )

  async def spawn(self, command: str, *, pty: bool = False) -> int:
    raise NotImplementedError

  async def poll(self, number: int, wait: float = 0.0) -> base.Progress:
    raise NotImplementedError

  async def send(self, number: int, data: bytes, *, eof: bool = False) -> None:
    raise NotImplementedError

  async def kill(self, number: int) -> None:
    raise NotImplementedError

  async def read(self, path: str, limit: int = 1 << 20) -> bytes:
    return (await self._request({"op": "read", "path": path, "limit": limit}))[1]

  async def write(self, path: str, data: bytes) -> None:
    await self._request({"op": "write", "path": path}, data)

  async def list(self, path: str = ".") -> list[dict]:
    return json.loads((await self._request({"op": "list", "path": path}))[1])

  async def processes(self) -> list[int]:
    """Ids, inside, of all processes but the server; zombies too."""
    return (await self._request({"op": "processes"}))[0]["pids"]

  async def quiet(self) -> None:
    await self._request({"op": "quiet"})

  async def snapshot(self) -> bytes:
    limit = 2 * self._bounds.disk + 2048 * self._bounds.inodes
    return (await self._request({"op": "pack", "limit": limit}))[1]

  async def restore(self, snapshot: bytes, root: str = base.WORKSPACE) -> None:
    await self._request({"op": "unpack", "root": root}, snapshot)

  async def fork(self) -> Self:
    snapshot = await self.snapshot()
    other = type(self)(**self._settings)
    await other.start()
    try:
      await other.restore(snapshot)
    except BaseException:
      await other.stop()
      raise
    other._initial = dict(self._initial)
    return other

  async def stop(self) -> None:
    self._fail("the sandbox was stopped")
    await self._disconnect()
    if self._reading is not None:
      self._reading.cancel()
      await asyncio.gather(self._reading, return_exceptions=True)

  async def _read_frames(self, stream: Reader) -> None:
    cause = "the sandbox ended"
    try:
      while True:
        sizes = _HEADER.unpack(await stream.readexactly(_HEADER.size))
        header = json.loads(await stream.readexactly(sizes[0]))
        body = await stream.readexactly(sizes[1])
        request = header["id"]
        if header.get("more"):
          self._parts.setdefault(request, []).append(body)
          continue
        body = b"".join([*self._parts.pop(request, []), body])
        future = self._waiting.pop(request, None)
        if future is not None and not future.done():
          future.set_result((header, body))
    except asyncio.IncompleteReadError:
      said = await self._last_words()
      cause += f" (it said: {said[-500:]})" if said else ""
    except OSError as error:
      cause = f"the sandbox's channel broke: {error}"
    self._fail(cause)

  def _fail(self, cause: str) -> None:
    self._lost = self._lost or cause
    for future in self._waiting.values():
      if not future.done():
        future.set_exception(SandboxLost(self._lost))
        future.exception()  # a caller that gave up leaves nobody to fetch it
    self._waiting.clear()

  async def _request(
      self, header: dict[str, Any], body: bytes = b"", *, seconds: float = 0.0
  ) -> tuple[dict[str, Any], bytes]:
    """Sends one request; its answer comes within seconds + the grace or never."""
    if self._writer is None:
      raise SandboxLost("the sandbox was not started")
    if self._lost:
      raise SandboxLost(self._lost)
    request = next(self._ids)
    future = asyncio.get_running_loop().create_future()
    self._waiting[request] = future
    raw = json.dumps({**header, "id": request}).encode()
    try:
      async with asyncio.timeout(seconds + self._bounds.grace_seconds):
        self._writer.write(_HEADER.pack(len(raw), len(body)) + raw + body)
        await self._writer.drain()
        answer, data = await future
    except TimeoutError:
      self._fail(f"the sandbox did not answer {header['op']!r} in time")
      raise SandboxLost(self._lost) from None
    except OSError as error:
      self._fail(f"the sandbox's channel broke: {error}")
      raise SandboxLost(self._lost) from None
    finally:
      self._waiting.pop(request, None)
    if "error" in answer:
      raise SandboxError(answer["error"], answer["code"])
    return answer, data
