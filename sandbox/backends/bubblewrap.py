"""Sandboxes of bubblewrap: namespaces of the kernel, no daemon, no image.

One `bwrap` holds one sandbox; `server.py` is its process 1. Inside there is
the host's /usr, read-only, and nothing else of the host: no network, no
environment, no file of the user. What bounds it: process count by
RLIMIT_NPROC, which the kernel counts per user namespace and which binds
because the sandbox is never the host's root; disk by tmpfs with a size and a
number of inodes; memory by RLIMIT_DATA and by the server's watch.

When the controller dies, however it dies, the kernel kills the sandbox. The
label in its command line lets `sandbox.reap` find what should not be there.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import platform
import secrets
import shutil
import signal
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Self

from clawgym_jax.contracts.errors import UserError
from sandbox.backends import base
from sandbox.backends.base import Bounds, ExecResult, SandboxError, SandboxLost
from sandbox.backends.labels import label

_HEADER = struct.Struct("!IQ")
_SERVER = Path(__file__).with_name("server.py").read_bytes()
_BOOT = (
    "import os\nn=int(os.read(0,16))\nb=b''\n"
    "while len(b)<n:b+=os.read(0,n-len(b))\n"
    "exec(compile(b,'sandbox-server','exec'))"
)
_PASSWD = b"root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000:user:/tmp/home:/bin/bash\n"
_GROUP = b"root:x:0:\nuser:x:1000:\n"
_DEVICES = ("null", "zero", "full", "random", "urandom")
_UID = 1000  # inside; outside it is the caller's, or for root one of its own
_FIRST_HOST_UID = 200_000
_HOST_UIDS = 1_000_000
_PROBE_SECONDS = 30.0
_PYTHON = "/usr/bin/python3"


@cache
def check() -> None:
  """Raises `UserError` with what to do unless sandboxes can run here."""
  if sys.platform != "linux":
    raise UserError("the bubblewrap backend needs Linux; run it in a Linux machine")
  if shutil.which("bwrap") is None:
    raise UserError("bubblewrap isn't installed; apt install bubblewrap")
  if not os.path.exists(_PYTHON):
    raise UserError(f"sandboxes need {_PYTHON}; apt install python3")
  if os.geteuid() == 0 and shutil.which("setpriv") is None:
    raise UserError("as root, sandboxes need setpriv; apt install util-linux")
  release = tuple(int(part) for part in platform.release().split(".")[:2])
  if release < (5, 14):
    raise UserError(
        f"Linux {platform.release()} can't bound the processes of one sandbox;"
        " use Linux 5.14 or newer"
    )
  try:
    probe = subprocess.run(
        [*_prefix(), *_mounts(), "--", "/usr/bin/true"],
        env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_SECONDS,
    )  # fmt: skip
  except subprocess.TimeoutExpired:
    raise UserError(
        f"bubblewrap did not start an empty sandbox within {_PROBE_SECONDS:g} s: is"
        f" {shutil.which('bwrap')} the real one?"
    ) from None
  if probe.returncode == 0:
    return
  said = probe.stderr.decode(errors="replace").strip()
  raise UserError(
      f"bubblewrap can't start a sandbox ({said}). If user namespaces are off,"
      " switch them on (sysctl -w user.max_user_namespaces=15000, and where the"
      " setting exists kernel.unprivileged_userns_clone=1 or"
      " kernel.apparmor_restrict_unprivileged_userns=0); inside a container,"
      " start that with --security-opt seccomp=unconfined"
  )


class BubblewrapSandbox(base.Sandbox):
  """See `base.Sandbox`.

  Args:
    bounds: limits.
    run_id: names the run that owns this sandbox; letters, digits, - and _.
    now: the value of CLAWGYM_NOW inside.
    folders: writable directories besides /workspace and /tmp, such as /checks.
  """

  def __init__(
      self,
      *,
      bounds: Bounds = Bounds(),
      run_id: str = "run",
      now: str = "",
      folders: tuple[str, ...] = (),
  ):
    self._settings = dict(bounds=bounds, run_id=run_id, now=now, folders=folders)
    self._bounds = bounds
    self._initial: base.Files = {}
    self._process: asyncio.subprocess.Process | None = None
    self._reader: asyncio.Task | None = None
    self._ids = itertools.count(1)
    self._waiting: dict[int, asyncio.Future] = {}
    self._parts: dict[int, list[bytes]] = {}
    self._lost: str | None = None
    self._ready = False

  async def start(self, files: base.Files | Path = {}) -> Self:
    check()
    self._initial = base.gather(files)
    try:
      async with asyncio.timeout(self._bounds.boot_seconds):
        await self._boot()
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
    if self._process is None:
      return
    if self._process.returncode is None:
      if not self._ready:
        await _kill_booting(self._process.pid)
      with contextlib.suppress(ProcessLookupError):
        self._process.kill()  # the kernel kills what is inside with it
    await self._process.wait()
    if self._reader is not None:
      self._reader.cancel()
      await asyncio.gather(self._reader, return_exceptions=True)

  @property
  def pid(self) -> int:
    """The host's process id of the bwrap that holds this sandbox."""
    return self._process.pid

  # The process.

  async def _boot(self) -> None:
    passwd, group = _memory_file(_PASSWD), _memory_file(_GROUP)
    folders = (base.WORKSPACE, "/tmp", *self._settings["folders"])
    tag = label(self._settings["run_id"], self._bounds.lifetime_seconds)
    command = (
        *_prefix(),
        *_mounts(passwd, group, folders),
        *("--", _PYTHON, "-I", "-S", "-c", _BOOT, self._config(folders), tag),
    )
    pipe = asyncio.subprocess.PIPE
    spawn = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            env={},
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            pass_fds=(passwd, group),
            limit=1 << 20,
        )
    )
    try:
      self._process = await asyncio.shield(spawn)
    except asyncio.CancelledError:
      # Cancelled half-way, asyncio would wait for its pipes for ever.
      self._process = await spawn
      raise
    finally:
      os.close(passwd)
      os.close(group)
    self._process.stdin.write(f"{len(_SERVER):016d}".encode() + _SERVER)
    ready = asyncio.get_running_loop().create_future()
    self._waiting[0] = ready
    self._reader = asyncio.create_task(self._read_frames())
    await ready
    self._ready = True

  def _config(self, folders: tuple[str, ...]) -> str:
    bounds = self._bounds
    return json.dumps({
        "mounts": {path: [bounds.disk, bounds.inodes] for path in folders},
        "folders": ["/tmp/home"],
        "memory": bounds.memory,
        "output": bounds.output,
        "lifetime_seconds": bounds.lifetime_seconds,
        "env": {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": "/tmp/home",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "CLAWGYM_NOW": self._settings["now"],
        },
        "rlimits": {
            "RLIMIT_NPROC": bounds.processes,
            "RLIMIT_DATA": bounds.memory,
            "RLIMIT_FSIZE": bounds.file_size,
            "RLIMIT_NOFILE": bounds.open_files,
            "RLIMIT_CPU": bounds.cpu_seconds,
            "RLIMIT_CORE": 0,
        },
    })

  async def _read_frames(self) -> None:
    stream = self._process.stdout
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
      said = (await self._process.stderr.read(4096)).decode(errors="replace").strip()
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
    if self._process is None:
      raise SandboxLost("the sandbox was not started")
    if self._lost:
      raise SandboxLost(self._lost)
    request = next(self._ids)
    future = asyncio.get_running_loop().create_future()
    self._waiting[request] = future
    raw = json.dumps({**header, "id": request}).encode()
    try:
      async with asyncio.timeout(seconds + self._bounds.grace_seconds):
        self._process.stdin.write(_HEADER.pack(len(raw), len(body)) + raw + body)
        await self._process.stdin.drain()
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


def _prefix() -> list[str]:
  """bwrap, as an unprivileged user of its own where the caller is root."""
  bwrap = shutil.which("bwrap") or "bwrap"  # PATH is the caller's, not the child's
  if os.geteuid() != 0:
    return [bwrap]
  uid = str(_FIRST_HOST_UID + secrets.randbelow(_HOST_UIDS))
  return [
      "setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--", bwrap,
  ]


def _mounts(
    passwd: int | None = None,
    group: int | None = None,
    folders: tuple[str, ...] = (),
) -> list[str]:
  """The arguments of bwrap: namespaces and a root in which nothing is writable."""
  args = [
      "--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session",
      "--clearenv", "--hostname", "sandbox",
      "--uid", str(_UID), "--gid", str(_UID),
      # For the server's start alone: it mounts, then gives them up.
      "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SYS_RESOURCE",
      "--ro-bind", "/usr", "/usr",
  ]
  for name in ("bin", "sbin", "lib", "lib32", "lib64"):
    path = f"/{name}"
    if os.path.islink(path):
      args += ["--symlink", os.readlink(path), path]
    elif os.path.isdir(path):
      args += ["--ro-bind", path, path]
  args += [
      "--ro-bind-try", "/etc/alternatives", "/etc/alternatives",
      "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache",
      "--proc", "/proc", "--tmpfs", "/dev",
  ]
  for name in _DEVICES:
    args += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
  for name, target in (
      ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"),
      ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2"),
      ("shm", "/tmp"),
  ):
    args += ["--symlink", target, f"/dev/{name}"]
  if passwd is not None:
    args += ["--file", str(passwd), "/etc/passwd", "--file", str(group), "/etc/group"]
  for folder in folders:
    args += ["--dir", folder]
  return [*args, "--remount-ro", "/dev", "--remount-ro", "/"]


async def _kill_booting(pid: int) -> None:
  """Kills the children of a bwrap that may not be tied to it yet.

  Until bwrap's child has asked to die with its parent, killing the parent
  would leave it behind. The parent is stopped first, so it makes no more.
  """
  with contextlib.suppress(ProcessLookupError):
    os.kill(pid, signal.SIGSTOP)
  for _ in range(1000):
    try:
      stat = Path(f"/proc/{pid}/stat").read_bytes()
      if stat.rpartition(b")")[2].split()[0] in (b"T", b"Z", b"X"):
        break
    except OSError:
      return
    await asyncio.sleep(0.001)
  with contextlib.suppress(OSError):
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
      os.kill(int(child), signal.SIGKILL)


def _memory_file(data: bytes) -> int:
  """A descriptor from which a child reads `data` once."""
  fd = os.memfd_create("sandbox")
  os.write(fd, data)
  os.lseek(fd, 0, os.SEEK_SET)
  return fd
