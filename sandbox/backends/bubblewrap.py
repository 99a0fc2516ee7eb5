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
import json
import os
import platform
import secrets
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Self

from clawgym_jax.contracts.errors import UserError
from sandbox.backends import base
from sandbox.backends.labels import label
from sandbox.backends.served import Reader, ServedSandbox, Writer

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


class BubblewrapSandbox(ServedSandbox):
  """See `served.ServedSandbox` and the module's docstring."""

  def __init__(self, **settings: Any):
    super().__init__(**settings)
    self._process: asyncio.subprocess.Process | None = None

  async def start(self, files: base.Files | Path = {}) -> Self:
    check()
    return await super().start(files)

  async def _disconnect(self) -> None:
    if self._process is None:
      return
    if self._process.returncode is None:
      if not self._answered:
        await _kill_booting(self._process.pid)
      with contextlib.suppress(ProcessLookupError):
        self._process.kill()  # the kernel kills what is inside with it
    await self._process.wait()

  async def _last_words(self) -> str:
    return (await self._process.stderr.read(4096)).decode(errors="replace").strip()

  @property
  def pid(self) -> int:
    """The host's process id of the bwrap that holds this sandbox."""
    return self._process.pid

  # The process.

  async def _connect(self) -> tuple[Reader, Writer]:
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
    return self._process.stdout, self._process.stdin

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
