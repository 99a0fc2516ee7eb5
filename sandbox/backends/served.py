"""A sandbox whose process 1 is our server, spoken to over one byte stream.

Every backend that can start a process with a stream to it (a socket, an
attached container, a websocket) is a `ServedSandbox`: it says how to connect
and how to end, and what is said on the stream is the same for all. Answers come
within the call's time and the grace, or the sandbox is lost, and lost stays
lost. What programs inside report and send to forwarded ports comes on the same
stream; nothing that they can say raises here.
"""

from __future__ import annotations

import abc
import asyncio
import codecs
import errno
import itertools
import os
import struct
from pathlib import Path
from typing import Protocol, Self

from clawgym_jax.contracts import json_text
from sandbox.backends import base, frames
from sandbox.backends.base import (
    Bounds,
    ExecResult,
    Progress,
    SandboxError,
    SandboxLost,
)
from sandbox.backends.forward import Forwarding
from sandbox.backends.frames import Op

SERVICES = "/services"
REPORT = "/run/sandbox/report"

_PATH = "/usr/local/bin:/usr/bin:/bin"


class Reader(Protocol):
  """What comes from the server; `asyncio.StreamReader` is one."""

  async def readexactly(self, count: int) -> bytes:
    """`count` bytes, or `asyncio.IncompleteReadError` at the end."""


class Writer(Protocol):
  """What goes to the server; `asyncio.StreamWriter` is one."""

  def write(self, data: bytes) -> None: ...

  async def drain(self) -> None: ...


def server_arguments(
    bounds: Bounds,
    now: str,
    folders: tuple[str, ...] = (),
    mount: bool = True,
    *,
    forward: tuple[int, ...] = (),
    lower: bool = False,
    counted: bool = False,
    label: str = "",
) -> list[str]:
  """The server's arguments.

  Args:
    folders: writable directories besides /workspace and /tmp.
    mount: the server mounts them, and has the privilege to. Otherwise they,
      and /run/sandbox, are there and writable when it starts.
    forward: ports of 127.0.0.1 whose connections come to the controller.
    lower: /run/lower is a workspace to lay an overlay over.
    counted: a cgroup bounds the memory; otherwise the server alone does, and
      refuses memory that belongs to no process.
    label: shows whose it is, in its command line.
  """
  path = f"{SERVICES}/bin:{_PATH}" if SERVICES in folders else _PATH
  env = {
      "PATH": path, "HOME": "/tmp/home", "LANG": "C.UTF-8", "TZ": "UTC",
      "CLAWGYM_NOW": now, "CLAWGYM_REPORT": REPORT,
  }  # fmt: skip
  limits = {
      "nproc": bounds.processes, "data": bounds.memory, "fsize": bounds.file_size,
      "nofile": bounds.open_files, "cpu": bounds.cpu_seconds, "core": 0,
  }  # fmt: skip
  return [
      *(["--mount"] if mount else []),
      *(["--lower"] if lower else []),
      *([] if counted else ["--seal"]),
      f"--watch={250 if counted else 50}",
      f"--disk={bounds.disk}",
      f"--inodes={bounds.inodes}",
      f"--memory={bounds.memory}",
      f"--output={bounds.output}",
      f"--lifetime={int(bounds.lifetime_seconds * 1000)}",
      *(f"--limit={name}={value}" for name, value in limits.items()),
      *(f"--env={name}={value}" for name, value in env.items()),
      *(f"--folder={name}" for name in (base.WORKSPACE, "/tmp", *folders)),
      *(f"--forward={port}" for port in forward),
      *([f"--label={label}"] if label else []),
  ]


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
    self.bad_reports = 0
    self.limits: dict[str, str] = {}
    self._bounds = bounds
    self._initial: base.Files | Path = {}
    self._began = 0.0  # on the loop's clock
    self._before = 0.0  # seconds of the sandbox that this one goes on from
    self._lower: Path | None = None  # the workspace, where an overlay is asked for
    self._ids = itertools.count(1)
    self._waiting: dict[int, asyncio.Future] = {}
    self._parts: dict[int, list[bytes]] = {}
    self._restoring = asyncio.Lock()  # the server takes one snapshot at a time
    self._stopping = asyncio.Lock()  # a start that is stopped stops itself too
    self._lost: str | None = None
    self._out_of_memory = False  # at this moment
    self._broken = False  # lost by the doing of what is inside
    self._answered = False  # the server is up
    self._writer: Writer | None = None
    self._reading: asyncio.Task | None = None
    self._forwarding = Forwarding(forward, lambda frame: self._writer.write(frame))

  @abc.abstractmethod
  async def _connect(self) -> tuple[Reader, Writer]:
    """Starts the server; gives the streams from and to it."""

  @abc.abstractmethod
  async def _disconnect(self) -> None:
    """Kills everything in the sandbox and waits for it; may be called at any
    point, also when `_connect` or this was cancelled, but not twice at once;
    never raises."""

  async def _last_words(self) -> str:
    """What the sandbox said when it ended, for the message; empty if nothing."""
    return ""

  async def _memory_ran_out(self) -> bool:
    """Whether the kernel killed something for the sandbox's memory since asked."""
    return False

  async def start(self, files: base.Files | Path = {}) -> Self:
    self._initial = files if isinstance(files, Path) else dict(files)
    content = b"" if self._lower is not None or files == {} else base.pack(files)
    try:
      async with asyncio.timeout(self._bounds.boot_seconds):
        reader, self._writer = await self._connect()
        self._began = asyncio.get_running_loop().time()
        ready = asyncio.get_running_loop().create_future()
        self._waiting[0] = ready
        self._reading = asyncio.create_task(self._read_frames(reader))
        if self._lower is not None and not frames.number((await ready)[0]):
          content = base.pack(files)
        if content:
          await self._restore(content, base.WORKSPACE, self._bounds.boot_seconds)
        await ready
        if self._lost:  # it was stopped before there was anything to stop
          raise self._gone()
        self._answered = True
    except TimeoutError:
      await self.stop()
      raise SandboxLost(
          f"the sandbox did not start within {self._bounds.boot_seconds:.0f} s"
      ) from None
    except OSError as error:  # no descriptor, no process, no memory for one more
      await self.stop()
      raise SandboxLost(f"the sandbox could not be started: {error}") from None
    except BaseException:
      await self.stop()
      raise
    return self

  async def exec(self, command: str, timeout: float = 60.0) -> ExecResult:
    bound = _milliseconds(timeout)
    line = _encode(command.replace("\0", ""))
    answer = await self._request(Op.EXEC, line, bound, seconds=bound / 1000)
    left_out, written, exit_code, why, micro = map(frames.number, answer[2:])
    timed_out, out_of_memory = bool(why & 1), bool(why & 2)
    if exit_code == 137 and not why and await self._memory_ran_out():
      out_of_memory = self._out_of_memory = True
      await self.quiet()  # as the server does when it comes first
      self._out_of_memory = False
    return ExecResult(
        output=_text(answer[0], answer[1], left_out),
        exit_code=exit_code,
        timed_out=timed_out,
        out_of_memory=out_of_memory,
        output_bytes=written,
        seconds=micro / 1e6,
    )

  async def spawn(self, command: str, *, pty: bool = False) -> int:
    line = _encode(command.replace("\0", ""))
    return frames.number((await self._request(Op.SPAWN, line, int(pty)))[0])

  async def poll(self, number: int, wait: float = 0.0) -> Progress:
    bound = _milliseconds(wait)
    answer = await self._request(Op.POLL, number, bound, seconds=bound / 1000)
    left_out, written, exit_code = map(frames.number, answer[2:5])
    return Progress(
        output=_text(answer[0], answer[1], left_out),
        exit_code=None if exit_code < 0 else exit_code,
        output_bytes=written,
        left_out=left_out,
    )

  async def send(self, number: int, data: bytes, *, eof: bool = False) -> None:
    await self._request(Op.SEND, number, data, int(eof))

  async def kill(self, number: int) -> None:
    await self._request(Op.KILL, number)

  async def read(self, path: str, limit: int = 1 << 20) -> bytes:
    return (await self._request(Op.READ, _encode(path), limit))[0]

  async def write(self, path: str, data: bytes) -> None:
    name = _encode(path)
    for at in range(0, max(1, len(data)), frames.CHUNK):
      await self._request(Op.WRITE, name, data[at : at + frames.CHUNK], at)

  async def list(self, path: str = ".") -> list[dict]:
    data = (await self._request(Op.LIST, _encode(path)))[0]
    entries, at = [], 0
    while at < len(data):
      letter, _, _, length, size = base.ENTRY.unpack_from(data, at)
      at += base.ENTRY.size
      name = os.fsdecode(data[at : at + length])
      at += length
      entries.append({"path": name, "type": base.KINDS[letter], "size": size})
    return sorted(entries, key=lambda entry: entry["path"])

  async def processes(self) -> list[int]:
    """Ids, inside, of all processes but the server; zombies too."""
    data = (await self._request(Op.PROCESSES))[0]
    return sorted(struct.unpack(f"!{len(data) // 4}I", data))

  async def quiet(self) -> None:
    await self._request(Op.QUIET)

  async def snapshot(self) -> bytes:
    return await self._pack(base.WORKSPACE)

  async def _pack(self, root: str) -> bytes:
    limit = 2 * self._bounds.disk + 2048 * self._bounds.inodes
    return (await self._request(Op.PACK, _encode(root), limit))[0]

  async def restore(self, snapshot: bytes, root: str = base.WORKSPACE) -> None:
    await self._restore(snapshot, root, 0.0)

  def _writable(self) -> tuple[str, ...]:
    """The folders inside that hold what a fork goes on from."""
    return (base.WORKSPACE, "/tmp", *self._settings["folders"])

  async def fork(self) -> Self:
    states = {root: await self._pack(root) for root in self._writable()}
    other = type(self)(**self._settings)
    other.reports, other.bad_reports = list(self.reports), self.bad_reports
    other._before = self._before + asyncio.get_running_loop().time() - self._began
    await other.start()
    try:
      for root, state in states.items():
        await other._restore(state, root, 0.0, exact=True)
    except BaseException:
      await other.stop()
      raise
    other._initial = self._initial
    return other

  async def stop(self) -> None:
    self._fail("the sandbox was stopped")
    async with self._stopping:
      await self._disconnect()
      await self._forwarding.close()
      if self._reading is not None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

  async def _read_frames(self, stream: Reader) -> None:
    cause = "the sandbox ended"
    try:
      while True:
        header = await stream.readexactly(frames.HEADER.size)
        request, op, flags, count, size = frames.HEADER.unpack(header)
        body = await stream.readexactly(size) if size else b""
        self._take(request, Op(op), flags, frames.fields(body, count))
    except (asyncio.IncompleteReadError, OSError) as error:
      if isinstance(error, OSError):  # it left what we said unread, for one
        cause = f"the sandbox's channel broke: {error}"
      said = await self._last_words()
      cause += f" (it said: {said[-500:]})" if said else ""
    except (ValueError, struct.error) as error:
      cause = f"the sandbox's server said what it never says: {error}"
    if self._lost is None and (self._out_of_memory or await self._memory_ran_out()):
      # The kernel may kill the server for what belongs to no process, as full pipes.
      self._broken, cause = True, "everything in the sandbox was killed: out of memory"
    self._fail(cause)

  def _take(self, request: int, op: Op, flags: int, fields: list[bytes]) -> None:
    if op is Op.REPORTED:
      self._take_report(*fields)
    elif op >= Op.OPENED:
      if not flags & frames.ERROR:
        self._forwarding.handle(op, request, fields)
    elif flags & frames.MORE:
      self._parts.setdefault(request, []).append(fields[0])
    else:
      parts = self._parts.pop(request, None)
      if parts and not flags & frames.ERROR:
        fields = [b"".join([*parts, *fields[:1]])]
      future = self._waiting.pop(request, None)
      if future is None or future.done():
        return
      if flags & frames.ERROR:
        text, code = fields[0].decode(errors="replace"), frames.number(fields[1])
        future.set_exception(SandboxError(text, code))
      else:
        future.set_result(fields or [b""])

  def _take_report(self, micro: bytes, line: bytes) -> None:
    try:
      report = json_text.parse(line.decode())
      service, data = report["service"], report["data"]
      sound = isinstance(service, str) and isinstance(data, dict)
      sound = sound and json_text.recordable(report)
    except (ValueError, LookupError, TypeError, RecursionError):
      sound = False
    if sound:
      seconds = self._before + frames.number(micro) / 1e6
      self.reports.append({"service": service, "seconds": seconds, "data": data})
    else:
      self.bad_reports += 1

  def _fail(self, cause: str) -> None:
    self._lost = self._lost or cause
    for future in self._waiting.values():
      if not future.done():
        future.set_exception(self._gone())
        future.exception()  # a caller that gave up leaves nobody to fetch it
    self._waiting.clear()

  def _gone(self) -> SandboxError | SandboxLost:
    """Why nothing is answered any more."""
    if self._broken:
      return SandboxError(self._lost, errno.ENOMEM)
    return SandboxLost(self._lost)

  async def _restore(
      self, snapshot: bytes, root: str, seconds: float, exact: bool = False
  ) -> None:
    """As `restore`, within `seconds`; `exact` leaves shut what is shut to its owner,
    and keeps links that lead out of `root`, which is that of a new sandbox."""
    data, name = memoryview(snapshot), _encode(root)
    parts = [
        data[at : at + frames.CHUNK]
        for at in range(0, max(1, len(data)), frames.CHUNK)
    ]
    async with self._restoring:
      await self._request(
          Op.UNPACK,
          *(
              (name, (i == 0) | (i == len(parts) - 1) << 1 | exact << 2, part)
              for i, part in enumerate(parts)
          ),
          seconds=seconds,
      )

  async def _request(
      self, op: Op, *fields: bytes | int | tuple, seconds: float = 0.0
  ) -> list[bytes]:
    """Sends one request; its answer comes within seconds + the grace or never.

    Fields that are tuples make frames of their own, of which the last is answered.
    """
    if self._writer is None:
      raise SandboxLost("the sandbox was not started")
    if self._lost:
      raise self._gone()
    request = next(self._ids)
    future = asyncio.get_running_loop().create_future()
    self._waiting[request] = future
    in_parts = fields and isinstance(fields[0], tuple)
    try:
      async with asyncio.timeout(seconds + self._bounds.grace_seconds):
        for part in fields if in_parts else (fields,):
          self._writer.write(frames.pack(request, op, *part))
          await self._writer.drain()
        return await future
    except asyncio.CancelledError:
      if op in (Op.EXEC, Op.SPAWN) and not self._lost:
        self._writer.write(frames.pack(next(self._ids), Op.CANCEL, request))
      raise
    except TimeoutError:
      self._fail(f"the sandbox did not answer {op.name.lower()!r} in time")
      raise SandboxLost(self._lost) from None
    except OSError as error:
      await asyncio.wait([self._reading], timeout=self._bounds.grace_seconds)
      self._fail(f"the sandbox's channel broke: {error}")
      raise self._gone() from None
    finally:
      self._waiting.pop(request, None)


def _milliseconds(seconds: float) -> int:
  return int(min(max(0.0, seconds) * 1000, 1 << 40))  # nan is 0


def _encode(text: str) -> bytes:
  """As bytes; those that could not be decoded on the way out are what they were."""
  try:
    return text.encode(errors="surrogateescape")
  except UnicodeEncodeError as error:
    raise SandboxError(f"not a text: {error}") from None


def _text(head: bytes, tail: bytes, left_out: int) -> str:
  """What was kept of an output; no character is cut where bytes are left out."""
  if not left_out:
    return (head + tail).decode(errors="replace")
  start = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
  cut = 0
  while cut < min(3, len(tail)) and tail[cut] & 0xC0 == 0x80:
    cut += 1
  note = f"\n[… {left_out} bytes left out …]\n"
  return start + note + tail[cut:].decode(errors="replace")
