"""What hostile programs meet in the tests: canaries outside, a neighbour beside.

A `Hostile` program is Python that runs inside. Each of its attempts prints
`refused WHAT ERRNO` or `DONE WHAT RESULT`, so that a test tells a refusal from an
attempt that was never made. `Canaries` are what it must not read, reach or
change: a secret in a file and in the controller's environment, listeners on
every kind of address that the host has, and what the kernel would tell of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import platform
import re
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.backends import (
    Bounds,
    ExecResult,
    Sandbox,
    SandboxError,
    cgroups,
    labels,
    open_sandbox,
)

MIB = 1 << 20
SMALL = Bounds(memory=128 * MIB, disk=8 * MIB, inodes=500, processes=48)
ANSWER_SECONDS = 10.0  # in which a neighbour answers

PRELUDE = r"""
import contextlib, ctypes, errno, fcntl, mmap, os, resource, signal, socket, struct
import subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(what, do, *args):
  try:
    got = do(*args)
  except OSError as error:
    print("refused", what, errno.errorcode.get(error.errno, error), flush=True)
  else:
    print("DONE", what, repr(got)[:300], flush=True)
def call(name, *args):
  args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
  result = libc.syscall(ctypes.c_long(NUMBERS[name]), *args)
  if result < 0:
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
  return result
def c(name, *args):
  result = getattr(libc, name)(*args)
  if result < 0:
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
  return result
def unmapped(do, *args):
  # An id that the namespace doesn't have is EINVAL before anything is asked.
  try:
    return do(*args)
  except OSError as error:
    raise OSError(1 if error.errno == 22 else error.errno, "") from None
def get(path, size=1 << 16):
  fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
  try: return os.read(fd, size)
  finally: os.close(fd)
def put(path, data=b"1"):
  fd = os.open(path, os.O_WRONLY)
  try: return os.write(fd, data)
  finally: os.close(fd)
"""

# Of x86_64; what has no program is called by number.
NUMBERS = {
    "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_open": 434,
    "pidfd_getfd": 438, "kcmp": 312, "open_tree": 428, "fsopen": 430,
    "move_mount": 429, "fspick": 433, "mount_setattr": 442, "pivot_root": 155,
    "clone": 56, "clone3": 435, "unshare": 272, "setns": 308, "swapon": 167,
    "swapoff": 168, "quotactl": 179, "keyctl": 250, "add_key": 248,
    "request_key": 249, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
    "io_uring_setup": 425, "kexec_load": 246, "kexec_file_load": 320,
    "init_module": 175, "finit_module": 313, "delete_module": 176, "syslog": 103,
    "acct": 163, "iopl": 172, "ioperm": 173, "open_by_handle_at": 304,
    "settimeofday": 164, "clock_settime": 227, "adjtimex": 159,
    "clock_adjtime": 305, "reboot": 169, "sethostname": 170,
    "setdomainname": 171, "vhangup": 153, "sched_setattr": 314, "capset": 126,
    "ioprio_set": 251, "migrate_pages": 256, "move_pages": 279, "memfd_create": 319,
    "mount": 165, "prlimit64": 302, "setpriority": 141, "exit": 60, "getpid": 39,
    "process_madvise": 440, "pidfd_send_signal": 424, "fanotify_init": 300,
    "semget": 64, "msgget": 68, "shmget": 29,
}  # fmt: skip

# What refuses: not EINVAL or EFAULT, which would say that it was asked wrongly.
REFUSALS = {
    "EPERM", "EACCES", "ENOSYS", "ENOENT", "EROFS", "ENXIO", "ECONNREFUSED", "EAI",
    "ENETUNREACH", "EAFNOSUPPORT", "EADDRNOTAVAIL", "ETXTBSY", "ENOTDIR",
}  # fmt: skip

class Canaries:
  """See the module's docstring; `check` asserts that they are as they were."""

  def __init__(self, folder: Path):
    self.folder = folder
    self.word = f"canary-{secrets.token_hex(8)}"
    self.secret = folder / "secret.txt"
    self.abstract = f"\0clawgym-test-{secrets.token_hex(8)}"
    self.path = folder / "listener"
    self._listeners: list[socket.socket] = []

  @contextlib.contextmanager
  def out(self) -> Iterator[Canaries]:
    """Puts them out, as long as the block runs."""
    self.secret.write_text(self.word)
    self.secret.chmod(0o666)
    self.folder.chmod(0o777)
    os.environ["CANARY_TOKEN"] = self.word
    self.port = self._listen(socket.AF_INET, ("127.0.0.1", 0))[1]
    with contextlib.suppress(OSError):  # where the host has no IPv6
      self._listen(socket.AF_INET6, ("::1", self.port))
    self._listen(socket.AF_UNIX, self.abstract)
    self._listen(socket.AF_UNIX, str(self.path))
    self.path.chmod(0o777)
    self._before, self._clock = self._seen(), _clock()
    try:
      yield self
    finally:
      del os.environ["CANARY_TOKEN"]
      for listener in self._listeners:
        listener.close()

  def check(self) -> None:
    for listener in self._listeners:
      with contextlib.suppress(BlockingIOError):
        raise AssertionError(f"reached from inside: {listener.accept()[0]}")
    assert self._seen() == self._before
    assert abs(_clock() - self._clock) < 5

  def _listen(self, family: int, address) -> tuple:
    listener = socket.socket(family)
    self._listeners.append(listener)
    listener.bind(address)
    listener.listen()
    listener.setblocking(False)
    return listener.getsockname()

  def _seen(self) -> dict[str, object]:
    """What a program that got out would have changed."""
    kernel = {
        path: Path(path).read_text()
        for path in (
            "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
            "/proc/sys/kernel/domainname", "/proc/sys/vm/overcommit_memory",
            "/proc/sys/net/ipv4/ip_forward", "/proc/swaps", "/etc/passwd",
        )
        if os.path.exists(path)
    }  # fmt: skip
    kernel["files"] = sorted(os.listdir(self.folder))
    kernel["secret"] = self.secret.read_text()
    kernel["mounts"] = left()["mounts"]
    return kernel


def _clock() -> float:
  """What time it was when the machine started."""
  return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def program(code: str, **names: object) -> bytes:
  """`code` as a program for inside, with `names` defined."""
  if "call(" in code and platform.machine() != "x86_64":
    pytest.skip("calls by number are those of x86_64")
  given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
  return f"{PRELUDE}NUMBERS = {NUMBERS!r}\n{given}{code}".encode()


async def run(
    sandbox: Sandbox, code: str, seconds: float = 20.0, **names: object
) -> ExecResult:
  """Runs a hostile program, then sees that the sandbox still serves."""
  name = f"/tmp/{secrets.token_hex(4)}.py"
  await sandbox.write(name, program(code, **names))
  result = await sandbox.exec(f"python3 {name}", seconds)
  assert (await sandbox.exec("echo serves", 10)).output == "serves\n"
  return result


def refused(output: str, at_least: int = 1) -> None:
  """Asserts that every attempt was refused, for what refuses, and that some were."""
  assert "DONE" not in output and "Traceback" not in output, output
  attempts = re.findall(r"^refused (.+) (\S+)$", output, re.MULTILINE)
  assert len(attempts) >= at_least, output
  unclear = [a for a in attempts if a[1] not in REFUSALS]
  assert not unclear, unclear


def left() -> dict[str, list]:
  """What there is of this process's sandboxes on the host."""
  marks = labels.labelled().items()
  with open("/proc/self/mounts") as file:
    mounts = [line for line in file if labels.PREFIX in line or "/workspace" in line]
  return {
      "processes": [pid for pid, mark in marks if mark.pid == os.getpid()],
      "cgroups": [name for _, name in cgroups.left() if f":{os.getpid()}:" in name],
      "mounts": mounts,
  }


async def nothing_left(before: dict[str, list]) -> None:
  """Waits until there is no more than `before`; the kernel takes its time."""
  for _ in range(200):
    more = {k: [x for x in v if x not in before[k]] for k, v in left().items()}
    if not any(more.values()):
      return
    await asyncio.sleep(0.05)
  raise AssertionError(more)


def abuse(
    backend: str,
    body: Callable[[Sandbox], Coroutine[Any, Any, Any]],
    bounds: Bounds = SMALL,
) -> Any:
  """Runs `body` with a sandbox beside a neighbour that answers all the while; gives
  its result once nothing of either is left."""

  async def whole():
    before = left()
    async with open_sandbox(backend) as beside:
      await beside.start()
      async with open_sandbox(backend, bounds=bounds) as sandbox:
        await sandbox.start()
        task = asyncio.create_task(body(sandbox))
        while not task.done():
          await asyncio.wait_for(beside.exec("true", 60), ANSWER_SECONDS)
          await asyncio.wait([task], timeout=0.3)
        said = await task
    await nothing_left(before)
    return said

  return asyncio.run(whole())


async def outcome(sandbox: Sandbox, code: str, seconds: float = 15.0) -> str:
  """What a program took or was refused: its output and the causes of its end."""
  try:
    result = await run(sandbox, code, seconds)
  except SandboxError as error:
    assert error.code == errno.ENOMEM, error
    return "out of memory"
  causes = ["out of memory"] * result.out_of_memory + ["timed out"] * result.timed_out
  return "\n".join([result.output, *causes])
