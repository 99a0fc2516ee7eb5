"""Sandboxes of docker: one container each; podman's socket serves as well.

A container has our server as its process 1, which also reaps, and is spoken to
over the attached stdin and stdout, whose bytes never reach the daemon's logs.
It has no network, a read-only root, no capability, a user that is nobody on the
host, and writes only to tmpfs of bounded size and number of inodes. Processes,
memory and CPU are bound by its cgroup.

When the controller dies, however it dies, its end of stdin closes, the server
ends, and the daemon removes the container and what belongs to it. What is left
all the same is found by its label: see `reap_containers`.

The daemon is the one at DOCKER_HOST, on this machine: a program and sockets of
this machine are mounted into its containers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests.exceptions

from clawgym_jax.contracts.errors import UserError
from sandbox.backends import build, served
from sandbox.backends.base import SandboxLost
from sandbox.backends.labels import Label, label
from sandbox.backends.served import Reader, ServedSandbox, Writer

DEFAULT_IMAGE = "clawgym-sandbox:latest"
LABEL = "clawgym.sandbox"
_DEFAULT_HOST = "unix:///var/run/docker.sock"
_SERVER = "/sandbox-server"
_CHECK_SECONDS = 10.0
_CALL_SECONDS = 60.0  # of the daemon's silence; then a call's thread is free again
_RETRY_SECONDS = 0.05
_EVENT_SECONDS = 0.1  # until the daemon has heard of what the kernel did
_EXPIRED_SECONDS = 120.0  # a life begins after the boot, the label's before it
_FREE_DISK = 512 << 20
_SERVER_MEMORY = 32 << 20  # what the server and the kernel take for themselves
_SERVER_FILES = 1024
_INODE_MEMORY = 2 << 10
# A user each: the kernel counts pipes, watches and queues by user, so that one
# sandbox could use up another's. Below 65,536, as rootless daemons map no more.
_FIRST_UID = 20_000
_UIDS = 10_000
# Bounded, since a daemon slows down for all when hundreds ask at once.
_threads = ThreadPoolExecutor(16, thread_name_prefix="docker")
_preparing = threading.Lock()
_ERRORS = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)


def check(
    image: str = DEFAULT_IMAGE, runtime: str = "", cpus: float | str = 1.0
) -> None:
  """Raises `UserError` with what to do unless sandboxes can run here."""
  try:
    enough = float(cpus) >= 0.01
  except ValueError:
    enough = False
  if not enough:
    raise UserError(f"docker's cpus={cpus} must be a number of at least 0.01")
  daemon = _daemon(_host())
  daemon.check(runtime)
  try:
    daemon.image(image)
  except docker.errors.ImageNotFound:
    if image == DEFAULT_IMAGE:
      do = "make it with: python -m sandbox.backends.docker_image"
    else:
      do = f"get it with: docker pull {image}"
    raise UserError(f"docker has no image {image}; {do}") from None
  except _ERRORS as error:
    raise UserError(f"docker did not look for the image {image}: {error}") from None
  full = daemon.full()
  if full:
    raise UserError(f"{full}; free some (docker system prune)")
  build.server_binary()


def client() -> docker.APIClient:
  """To the daemon at DOCKER_HOST; `UserError` with what to do where there is none."""
  return _daemon(_host()).client


def reap_containers() -> dict[str, int]:
  """Removes containers whose controller is gone or whose life is over.

  Counts those removed, kept and refused (the daemon would not). Where there is
  no daemon there is nothing to count.
  """
  counts = {"removed": 0, "kept": 0, "refused": 0}
  try:
    client = _daemon(_host()).client
    found = client.containers(all=True, filters={"label": LABEL})
  except (UserError, *_ERRORS):
    return counts
  for container in found:
    mark = Label.parse(container["Labels"].get(LABEL, ""))
    over = mark is not None and time.time() > mark.expires + _EXPIRED_SECONDS
    if mark is None or not (over or mark.orphaned()):
      counts["kept"] += 1
      continue
    try:
      _remove(client, container["Id"], _CALL_SECONDS)
      counts["removed"] += 1
    except _ERRORS:
      counts["refused"] += 1
  return counts


class DockerSandbox(ServedSandbox):
  """See `served.ServedSandbox` and the module's docstring.

  Args:
    image: what is inside; needs /bin/sh. Its entry point, user and environment
      are not used, its volumes are tmpfs.
    runtime: the daemon's name of another runtime, as runsc (gVisor) or kata.
    cpus: of the host, for all processes together.
    settings: as of `ServedSandbox`.
  """

  def __init__(
      self,
      *,
      image: str = DEFAULT_IMAGE,
      runtime: str = "",
      cpus: float | str = 1.0,
      **settings: Any,
  ):
    super().__init__(**settings)
    self._settings |= dict(image=image, runtime=runtime, cpus=float(cpus))
    self._name = f"clawgym-{secrets.token_hex(8)}"
    self._daemon: _Daemon | None = None
    self._created: Future | None = None
    self._volumes: tuple[str, ...] = ()  # of the image
    self._stream: asyncio.StreamWriter | None = None
    self._demultiplexed: _Demultiplexed | None = None
    self._asked = time.time()

  @property
  def name(self) -> str:
    """The container's."""
    return self._name

  async def _connect(self) -> tuple[Reader, Writer]:
    image, runtime = self._settings["image"], self._settings["runtime"]
    self._daemon = daemon = await _call(_prepare, _host(), image, runtime)
    full = daemon.full()
    if full:
      raise SandboxLost(full)
    try:
      config = self._config(daemon.image(image))
      self._created = _threads.submit(
          daemon.client.create_container_from_config, config, self._name
      )
      await asyncio.wrap_future(self._created)
      stream, self._stream = await _attach(daemon, self._name)
      await _call(daemon.client.start, self._name)
    except _ERRORS as error:
      raise SandboxLost(f"docker did not start the sandbox: {error}") from None
    self.limits = daemon.limits()
    self._demultiplexed = _Demultiplexed(stream)
    return self._demultiplexed, self._stream

  async def _disconnect(self) -> None:
    if self._stream is not None:
      self._stream.close()
    if self._created is None or self._created.cancelled():
      return
    seconds = self._bounds.boot_seconds
    # Where the daemon does not answer, the container ends by its stdin, or at the
    # latest with its lifetime.
    with contextlib.suppress(TimeoutError, *_ERRORS):
      async with asyncio.timeout(seconds):
        # Cancelled half-way, it may still be made.
        await asyncio.gather(
            asyncio.wrap_future(self._created), return_exceptions=True
        )
        await _call(_remove, self._daemon.client, self._name, seconds)

  async def _last_words(self) -> str:
    return self._demultiplexed.errors.decode(errors="replace").strip()

  async def _memory_ran_out(self) -> bool:
    since, self._asked = self._asked, time.time()
    with contextlib.suppress(TimeoutError, *_ERRORS):
      async with asyncio.timeout(self._bounds.grace_seconds):
        for wait in (0.0, _EVENT_SECONDS):
          await asyncio.sleep(wait)
          if await _call(_memory_kills, self._daemon.client, self._name, since):
            return True
    return False

  def _writable(self) -> tuple[str, ...]:
    """Volumes of the image too: on the host's disk nothing would bound them."""
    return (*super()._writable(), "/dev/shm", *self._volumes)

  def _config(self, image: dict[str, Any]) -> dict[str, Any]:
    """The body of docker's request for a container."""
    settings, bounds = self._settings, self._bounds
    uid = _FIRST_UID + secrets.randbelow(_UIDS)
    self._volumes = tuple(image.get("Volumes") or ())
    size, inodes = bounds.disk, bounds.inodes
    tmpfs = {path: self._daemon.tmpfs(size, inodes, uid) for path in self._writable()}
    # Files in tmpfs are memory of the container, and none of its processes'.
    memory = bounds.memory + _SERVER_MEMORY
    memory += len(tmpfs) * (size + inodes * _INODE_MEMORY)
    # The socket for reports.
    tmpfs["/run/sandbox"] = self._daemon.tmpfs(64 << 10, 16, uid)
    files = bounds.open_files + _SERVER_FILES
    mark = label(settings["run_id"], bounds.lifetime_seconds)
    arguments = served.server_arguments(
        bounds,
        settings["now"],
        settings["folders"],
        mount=False,
        forward=tuple(settings["forward"]),
        counted=True,
        label=mark,
    )
    mounts = {_SERVER: build.server_binary(), "/etc/passwd": _passwd()}
    return {
        "Image": settings["image"],
        "Entrypoint": [_SERVER],
        # The cgroup counts processes; by user, two sandboxes may be one.
        "Cmd": [a for a in arguments if not a.startswith("--limit=nproc=")],
        "Labels": {LABEL: mark},
        "Hostname": "sandbox",
        "User": f"{uid}:{uid}",
        "WorkingDir": "/",
        **({"Healthcheck": {"Test": ["NONE"]}} if image.get("Healthcheck") else {}),
        "StopSignal": "SIGKILL",  # a daemon that ends waits for what others do
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": True,  # the server ends with the one that speaks to it
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": {
            "AutoRemove": True,
            "NetworkMode": "none",
            "IpcMode": "none",  # no /dev/shm of its own, which has no bound of inodes
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "LogConfig": {"Type": "none"},
            "PidsLimit": bounds.processes + 1,
            "Memory": memory,
            "MemorySwap": memory,  # both together: no swap
            "NanoCpus": int(settings["cpus"] * 1e9),
            "Ulimits": [
                {"Name": name, "Soft": value, "Hard": value}
                for name, value in {"core": 0, "nofile": files}.items()
            ],
            "Tmpfs": tmpfs,
            "Mounts": [
                {"Type": "bind", "Source": str(at), "Target": target, "ReadOnly": True}
                for target, at in mounts.items()
            ],
            **({"Runtime": settings["runtime"]} if settings["runtime"] else {}),
        },
    }


@dataclass(frozen=True, eq=False)
class _Daemon:
  """A daemon that answered once; `info` is what it said of itself."""

  client: docker.APIClient
  socket: str
  info: dict[str, Any]
  podman: bool

  @cache
  def image(self, name: str) -> dict[str, Any]:
    """What a container of the image would be like, unless told otherwise."""
    return self.client.inspect_image(name)["Config"] or {}

  def check(self, runtime: str) -> None:
    """Raises `UserError` where it can't bound or isolate as it must."""
    info = self.info
    for key, what in (("PidsLimit", "processes"), ("MemoryLimit", "memory")):
      if not info.get(key):
        raise UserError(
            f"this docker daemon can't bound the {what} of a container; give it the"
            f" cgroup controller (a rootless daemon: systemd's Delegate=yes)"
        )
    if not any("seccomp" in option for option in info.get("SecurityOptions") or ()):
      raise UserError("this docker daemon has no seccomp; use one that has")
    named = runtime.startswith("io.containerd.")  # a shim's, which no list has
    if runtime and not named and runtime not in info.get("Runtimes", {}):
      known = ", ".join(sorted(info.get("Runtimes", {})))
      raise UserError(
          f"this docker daemon has no runtime {runtime!r}, only {known}; add it to"
          ' "runtimes" in /etc/docker/daemon.json'
      )

  def full(self) -> str:
    """What to say where too little disk is left for one more; else nothing."""
    root = self.info.get("DockerRootDir", "")
    try:
      free = shutil.disk_usage(root).free
    except OSError:  # of another user, or of the daemon's own machine
      return ""
    if free >= _FREE_DISK:
      return ""
    needed = _FREE_DISK >> 20
    return f"{root} of the docker daemon has {free >> 20} MiB left, {needed} needed"

  def tmpfs(self, size: int, inodes: int, uid: int) -> str:
    """Mount options. Podman knows no bound of inodes: their memory bounds them."""
    options = f"rw,exec,nosuid,nodev,size={size}"
    if self.podman:
      return f"{options},mode=1777,notmpcopyup"
    return f"{options},nr_inodes={inodes},uid={uid},gid={uid},mode=0755"

  def limits(self) -> dict[str, str]:
    group = f"cgroup v{self.info.get('CgroupVersion') or 1}"
    return {"processes": group, "memory": group, "cpu": group, "disk": "tmpfs"}


class _Demultiplexed:
  """Reads what a container writes to stdout; keeps the end of its stderr."""

  def __init__(self, stream: asyncio.StreamReader):
    self._stream, self._buffer, self.errors = stream, bytearray(), b""

  async def readexactly(self, count: int) -> bytes:
    while len(self._buffer) < count:
      try:
        header = await self._stream.readexactly(8)  # kind, three zeros, length
        data = await self._stream.readexactly(int.from_bytes(header[4:], "big"))
      except asyncio.IncompleteReadError:
        raise asyncio.IncompleteReadError(bytes(self._buffer), count) from None
      if header[0] == 2:
        self.errors = (self.errors + data)[-4096:]
      else:
        self._buffer += data
    data = bytes(self._buffer[:count])
    del self._buffer[:count]
    return data


async def _attach(
    daemon: _Daemon, name: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
  """The raw stream of a container's stdin, stdout and stderr.

  Not by the SDK, whose socket would hold a thread without a deadline.
  """
  reader, writer = await asyncio.open_unix_connection(daemon.socket)
  try:
    path = f"/v{daemon.client.api_version}/containers/{name}/attach"
    writer.write(
        f"POST {path}?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
        "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        "Content-Length: 0\r\n\r\n".encode()
    )
    try:
      head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
      raise OSError("the daemon hung up on an attach") from error
    status = head.split(b" ", 2)[1]
    if status not in (b"101", b"200"):
      said = (await reader.read(4096)).decode(errors="replace").strip()
      raise OSError(f"the daemon refused an attach: {said}")
  except BaseException:
    writer.close()
    raise
  return reader, writer


async def _call(function: Callable[..., Any], *args: Any) -> Any:
  return await asyncio.wrap_future(_threads.submit(function, *args))


def _remove(client: docker.APIClient, container: str, seconds: float) -> None:
  """Kills and removes a container and its volumes, and waits until it is gone."""
  end = time.monotonic() + seconds
  while True:
    try:
      client.remove_container(container, v=True, force=True)
      return
    except docker.errors.NotFound:
      return
    except docker.errors.APIError:
      # Most often: the daemon is removing it already, as its server has ended.
      if time.monotonic() > end:
        raise
    time.sleep(_RETRY_SECONDS)


def _prepare(host: str, image: str, runtime: str) -> _Daemon:
  """Once a process: `check`, and what dead runs left is removed."""
  with _preparing:
    return _prepared(host, image, runtime)


@cache
def _prepared(host: str, image: str, runtime: str) -> _Daemon:
  check(image, runtime)
  reap_containers()
  return _daemon(host)


def _host() -> str:
  return os.environ.get("DOCKER_HOST") or _DEFAULT_HOST


@cache
def _daemon(host: str) -> _Daemon:
  """The daemon at `host`; `UserError` with what to do where there is none."""
  if sys.platform != "linux":
    raise UserError("the docker backend needs Linux; run it in a Linux machine")
  if not host.startswith("unix://"):
    raise UserError(
        f"DOCKER_HOST={host} may be another machine; sandboxes need the socket of a"
        " daemon on this one: DOCKER_HOST=unix:///PATH"
    )
  socket = host.removeprefix("unix://")
  try:
    client = docker.APIClient(host, timeout=_CHECK_SECONDS)
    info = client.info()
    parts = client.version().get("Components") or ()
  except _ERRORS as error:
    raise UserError(
        f"no docker daemon answers at {host} ({error}). Start it (apt install"
        " docker.io; systemctl start docker), be a user who may use it (the group"
        " docker), or give the socket of another, of podman too, as"
        " DOCKER_HOST=unix:///PATH"
    ) from None
  client.timeout = _CALL_SECONDS
  podman = any("podman" in part.get("Name", "").lower() for part in parts)
  return _Daemon(client, socket, info, podman)


def _memory_kills(client: docker.APIClient, container: str, since: float) -> int:
  """How often the kernel has killed for a container's memory since a time."""
  found = client.events(
      since=f"{since:.9f}", until=f"{time.time():.9f}", decode=True,
      filters={"type": "container", "container": container, "event": "oom"},
  )  # fmt: skip
  return sum(1 for _ in found)


@cache
def _passwd() -> Path:
  """A passwd file in which every user that a sandbox may have is called user."""
  lines = ["root:x:0:0:root:/:/bin/sh"]
  for uid in range(_FIRST_UID, _FIRST_UID + _UIDS):
    lines.append(f"user:x:{uid}:{uid}::/tmp/home:/bin/sh")
  path = build.server_binary().with_name("passwd")
  part = path.with_name(f"passwd.{secrets.token_hex(4)}")
  part.write_text("\n".join(lines) + "\n")
  part.chmod(0o644)
  part.replace(path)
  return path
