"""Sandboxes of bubblewrap: namespaces of the kernel, no daemon, no image.

One `bwrap` holds one sandbox; `server.c` is its process 1, and the program that
starts it: as root that makes it a user of its own. Inside there is the host's
/usr, read-only, and nothing else of the host: no network, no environment, no
file of the user. What bounds it: process count by RLIMIT_NPROC, which the
kernel counts per user namespace and which binds because the sandbox is never
the host's root; disk by tmpfs with a size and a number of inodes; memory by
RLIMIT_DATA and by the server's watch; both again by a cgroup where one can be
made. `limits` says which it got.

When the controller dies, however it dies, the kernel kills the sandbox. The
label in its command line lets `sandbox.reap` find what should not be there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Self

from clawgym_jax.contracts import workspace
from clawgym_jax.contracts.errors import UserError
from sandbox.backends import base, cgroups
from sandbox.backends.build import server_binary
from sandbox.backends.labels import label, numbered
from sandbox.backends.served import (
    Reader,
    ServedSandbox,
    Writer,
    server_arguments,
)

SHOWN = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")  # of the host, to all
OVERLAY_BYTES = 1 << 20  # a workspace up to this is copied

_SERVER = ("/proc/self/fd/5",)  # the launcher opens it, and passwd and group as 3, 4
_UID = 1000  # inside; outside it is the caller's, or for root one of its own
_FIRST_HOST_UID = 200_000
_HOST_UIDS = 1_000_000
_PROBE_SECONDS = 30.0
_STOP_SECONDS = 5.0
_SIGNALS = [number for number in signal.Signals if number not in (9, 19)]


@cache
def check() -> None:
  """Raises `UserError` with what to do unless sandboxes can run here."""
  if sys.platform != "linux":
    raise UserError("the bubblewrap backend needs Linux; run it in a Linux machine")
  if shutil.which("bwrap") is None:
    raise UserError("bubblewrap isn't installed; apt install bubblewrap")
  server = str(server_binary())
  release = tuple(int(part) for part in platform.release().split(".")[:2])
  if release < (5, 14):
    raise UserError(
        f"Linux {platform.release()} can't bound the processes of one sandbox;"
        " use Linux 5.14 or newer"
    )
  try:
    probe = subprocess.run(
        [server, "--launch", *_as_user(), "--", *_mounts(), "--", "/usr/bin/true"],
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
    self._pid: int | None = None
    self._ended = False
    self._said: int | None = None  # a file in memory: bwrap's error output
    self._stream: asyncio.StreamWriter | None = None
    self._cgroup: cgroups.Cgroup | None = None

  async def start(self, files: base.Files | Path = {}) -> Self:
    check()
    if isinstance(files, Path) and _suits_overlay(files):
      self._lower = files.resolve()
    try:
      return await super().start(files)
    finally:
      if self._said is not None:
        os.close(self._said)
        self._said = None

  async def _disconnect(self) -> None:
    if self._stream is not None:
      self._stream.close()
    if self._pid is not None and not self._ended:
      if self._answered:
        kill_children(self._pid)  # then bwrap ends, after the last inside
      else:
        await stop_booting(self._pid)
        kill_children(self._pid)
        os.kill(self._pid, signal.SIGKILL)
      if not await _wait(self._pid, _STOP_SECONDS):
        os.kill(self._pid, signal.SIGKILL)
        await _wait(self._pid, None)
      self._ended = True
    if self._cgroup is not None:
      for _ in range(100):
        if self._cgroup.remove():
          break
        await asyncio.sleep(0.01)
      self._cgroup = None

  async def _last_words(self) -> str:
    if self._said is None:
      return ""
    return os.pread(self._said, 4096, 0).decode(errors="replace").strip()

  async def _memory_ran_out(self) -> bool:
    return self._cgroup is not None and self._cgroup.memory_ran_out()

  @property
  def pid(self) -> int:
    """The host's process id of the bwrap that holds this sandbox."""
    return self._pid

  async def _connect(self) -> tuple[Reader, Writer]:
    bounds, folders = self._bounds, self._settings["folders"]
    mark = label(self._settings["run_id"], bounds.lifetime_seconds)
    places = len(folders) + 2
    self._cgroup = cgroups.make(
        numbered(mark), bounds.processes, bounds.memory + places * bounds.disk
    )
    by = f"cgroup v{self._cgroup.version}" if self._cgroup else "rlimit"
    self.limits = {"processes": by, "memory": by, "disk": "tmpfs"}
    binary = str(server_binary())
    forward = tuple(self._settings["forward"])
    command = [
        binary, "--launch", *_as_user(self._lower),
        *(f"--join={path}" for path in (self._cgroup.joins if self._cgroup else ())),
        "--", *_mounts(folders, _shown(self._lower)), "--", *_SERVER,
        *server_arguments(
            bounds, self._settings["now"], folders, forward=forward,
            lower=self._lower is not None, counted=self._cgroup is not None, label=mark,
        ),
    ]  # fmt: skip
    ours, theirs = socket.socketpair()
    self._said = os.memfd_create("said")
    try:
      self._pid = os.posix_spawn(
          binary,
          command,
          {},
          file_actions=[
              (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
              (os.POSIX_SPAWN_DUP2, theirs.fileno(), 1),
              (os.POSIX_SPAWN_DUP2, self._said, 2),
          ],
          setsigmask=[],
          setsigdef=_SIGNALS,
      )
    except BaseException:
      ours.close()
      raise
    finally:
      theirs.close()
    ours.setblocking(False)
    reader, self._stream = await asyncio.open_connection(sock=ours, limit=1 << 20)
    return reader, self._stream


def _as_user(lower: Path | None = None) -> list[str]:
  """The launcher's arguments: an unprivileged user of its own where we are root."""
  if os.geteuid() != 0:
    return []
  uid = _FIRST_HOST_UID + secrets.randbelow(_HOST_UIDS)
  return [f"--uid={uid}", *([f"--lower={lower}"] if lower is not None else [])]


def _shown(lower: Path | None) -> str | None:
  """Where the launcher shows the workspace: as root at /tmp, see server.c."""
  if lower is None:
    return None
  return "/tmp" if os.geteuid() == 0 else str(lower)


def _suits_overlay(folder: Path) -> bool:
  """Whether a workspace is large, and an overlay shows it as a copy would."""
  total, files, waiting = 0, [], [str(folder)]
  owner = folder.stat()
  if not _looks_copied(owner):
    return False
  while waiting:
    with os.scandir(waiting.pop()) as entries:
      for entry in entries:
        info = entry.stat(follow_symlinks=False)
        same_owner = (info.st_uid, info.st_gid) == (owner.st_uid, owner.st_gid)
        if not (same_owner and _looks_copied(info)):
          return False
        if stat.S_ISDIR(info.st_mode):
          waiting.append(entry.path)
        else:
          files.append((entry.path, stat.S_IMODE(info.st_mode)))
          total += info.st_size
  return total > OVERLAY_BYTES and all(_has_its_mode(*file) for file in files)


def _looks_copied(info: os.stat_result) -> bool:
  """Whether a file or folder has the time of copies, and a folder their mode too."""
  if info.st_mtime_ns != workspace.TIME * 1_000_000_000:
    return False
  folder = stat.S_IFDIR | workspace.FOLDER_MODE
  return stat.S_ISREG(info.st_mode) or info.st_mode == folder


def _has_its_mode(path: str, mode: int) -> bool:
  with open(path, "rb") as file:
    return workspace.file_mode(file.read(2)) == mode


@cache
def _mounts(folders: tuple[str, ...] = (), lower: str | None = None) -> list[str]:
  """bwrap and its arguments: namespaces and a root in which nothing is writable."""
  args = [
      shutil.which("bwrap") or "bwrap",  # PATH is the caller's, not the child's
      "--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session",
      "--clearenv", "--hostname", "sandbox",
      "--uid", str(_UID), "--gid", str(_UID),
      # For the server's start alone: it mounts, then gives them up.
      "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SYS_RESOURCE",
      "--ro-bind", SHOWN[0], SHOWN[0],
  ]
  for path in SHOWN[1:]:
    if os.path.islink(path):
      args += ["--symlink", os.readlink(path), path]
    elif os.path.isdir(path):
      args += ["--ro-bind", path, path]
  args += [
      "--ro-bind-try", "/etc/alternatives", "/etc/alternatives",
      "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache",
      "--proc", "/proc",
      # The server takes from it what is shown at /dev, then lets go of it.
      "--dev-bind", "/dev", "/run/devices",
      "--file", "3", "/etc/passwd", "--file", "4", "/etc/group",
  ]
  for folder in (
      base.WORKSPACE, "/tmp", *folders, "/dev", "/run/sandbox", "/run/upper",
      "/run/lower",
  ):  # fmt: skip
    args += ["--dir", folder]
  if lower is not None:
    # The overlay's own work directory is shut to all who lack this.
    args += ["--cap-add", "CAP_DAC_OVERRIDE", "--ro-bind", lower, "/run/lower"]
  return [*args, "--remount-ro", "/"]


def kill_children(pid: int) -> None:
  """Kills the children of a bwrap: process 1, and with it all the rest."""
  with contextlib.suppress(OSError):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
      for child in file.read().split():
        os.kill(int(child), signal.SIGKILL)


async def stop_booting(pid: int) -> None:
  """Stops a bwrap whose child may not be tied to it yet, so that it makes no more.

  Until bwrap's child has asked to die with its parent, killing the parent
  would leave it behind.
  """
  with contextlib.suppress(ProcessLookupError):
    os.kill(pid, signal.SIGSTOP)
  for _ in range(1000):
    try:
      state = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
      return
    if state.rpartition(b")")[2].split()[0] in (b"T", b"Z", b"X"):
      return
    await asyncio.sleep(0.001)


async def _wait(pid: int, seconds: float | None) -> bool:
  """Waits for the end of a child; False if that takes longer."""
  if os.waitpid(pid, os.WNOHANG)[0]:
    return True
  loop = asyncio.get_running_loop()
  ended = loop.create_future()
  try:
    handle = os.pidfd_open(pid)
  except OSError:  # no descriptor left: by looking, then
    until = loop.time() + (1e9 if seconds is None else seconds)
    while not os.waitpid(pid, os.WNOHANG)[0]:
      if loop.time() > until:
        return False
      await asyncio.sleep(0.01)
    return True
  loop.add_reader(handle, lambda: ended.done() or ended.set_result(None))
  try:
    await asyncio.wait_for(ended, seconds)
  except TimeoutError:
    return False
  finally:
    loop.remove_reader(handle)
    os.close(handle)
  os.waitpid(pid, 0)
  return True
