"""A docker daemon of the caller's own, for tests and measurements alone: its
socket, files and cgroups are private.

It has no network and asks for no iptables, and runs wherever a root may mount
and make cgroups. It ends with the caller, also where that is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker

_PREFIX = "dockerd-"
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0


class CannotRun(Exception):
  """No daemon can be run here; the text says why."""


@dataclass(eq=False)
class Daemon:
  """A running daemon; `process` is the dockerd itself."""

  program: str
  folder: Path
  process: subprocess.Popen | None = None
  client: docker.APIClient | None = None

  @property
  def url(self) -> str:
    return f"unix://{self.folder}/docker.sock"

  @property
  def name(self) -> str:
    return self.folder.name

  def start(self) -> None:
    """Starts it, again where it died, and waits until it answers."""
    # A containerd that nobody has reaped yet would pass for a running one.
    for left in self.folder.glob("exec/containerd/*.pid"):
      left.unlink()
    self.process = _start(self.program, self.folder)
    self.client = _connect(self)

  def containers(self) -> list[str]:
    """Names of all containers, running or not."""
    return [c["Names"][0][1:] for c in self.client.containers(all=True)]


@contextlib.contextmanager
def daemon(disk: int = 720 << 20) -> Iterator[Daemon]:
  """A daemon for as long as the block runs, its files on a tmpfs of `disk` bytes."""
  program = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin")
  if program is None:
    raise CannotRun("there is no dockerd: apt install docker.io")
  if os.geteuid() != 0:
    raise CannotRun("a docker daemon needs root")
  for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
    with contextlib.suppress(FileNotFoundError):  # it has just ended
      old = time.time() - left.stat().st_mtime > _START_SECONDS
      if old and not _processes(left):
        _stop(Daemon(program, left))  # of one that was killed
  folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
  found = Daemon(program, folder)
  try:
    _mount(folder / "data", disk)
    (folder / "daemon.json").write_text("{}")  # instead of the machine's
    found.start()
    yield found
  finally:
    _stop(found)


def _mount(place: Path, size: int) -> None:
  place.mkdir()
  mounted = subprocess.run(
      ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place],
      capture_output=True, text=True,
  )  # fmt: skip
  if mounted.returncode != 0:
    raise CannotRun(f"a docker daemon needs to mount: {mounted.stderr.strip()}")


def _start(program: str, folder: Path) -> subprocess.Popen:
  command = [
      "setpriv", "--pdeathsig", "TERM", program,
      "--config-file", folder / "daemon.json",
      "--bridge", "none", "--iptables=false", "--ip6tables=false",
      "--ip-forward=false", "--userland-proxy=false",
      "--data-root", folder / "data", "--exec-root", folder / "exec",
      "--cgroup-parent", f"/{folder.name}",
      "--host", f"unix://{folder}/docker.sock", "--pidfile", folder / "pid",
  ]  # fmt: skip
  with open(folder / "log", "wb") as log:
    return subprocess.Popen(
        list(map(str, command)), stdout=log, stderr=log, start_new_session=True
    )


def _connect(daemon: Daemon) -> docker.APIClient:
  end = time.monotonic() + _START_SECONDS
  while time.monotonic() < end and daemon.process.poll() is None:
    try:
      client = docker.APIClient(daemon.url, timeout=_STOP_SECONDS)
      client.ping()
      return client
    except (docker.errors.DockerException, OSError):
      time.sleep(0.05)
  said = (daemon.folder / "log").read_text(errors="replace").strip().splitlines()
  raise CannotRun("dockerd does not run here: " + (said[-1] if said else "no word"))


def _stop(daemon: Daemon) -> None:
  """Ends the containers, the daemon and its containerd; removes what they made."""
  if daemon.client is not None:
    with contextlib.suppress(Exception):  # it may be dead
      for container in daemon.client.containers(all=True):
        daemon.client.remove_container(container["Id"], v=True, force=True)
    daemon.client.close()
  if daemon.process is not None:
    daemon.process.send_signal(signal.SIGCONT)
    daemon.process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
      daemon.process.wait(_STOP_SECONDS)
  end = time.monotonic() + _STOP_SECONDS
  while (left := _processes(daemon.folder)) and time.monotonic() < end:
    for pid in left:
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.05)
  if daemon.process is not None:
    daemon.process.kill()
    daemon.process.wait()
  for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
    place = line.split(" ")[1]
    if place.startswith(f"{daemon.folder}/"):
      subprocess.run(["umount", "--lazy", place], check=False)
  for pattern in (daemon.name, f"*/{daemon.name}"):  # cgroup v2, v1
    for cgroup in Path("/sys/fs/cgroup").glob(pattern):
      for path, _, _ in os.walk(cgroup, topdown=False):
        with contextlib.suppress(OSError):
          os.rmdir(path)
  shutil.rmtree(daemon.folder)


def _processes(folder: Path) -> list[int]:
  """The daemon's containerd and that one's shims: they name the folder."""
  found = []
  for entry in Path("/proc").iterdir():
    if entry.name.isdigit() and int(entry.name) != os.getpid():
      with contextlib.suppress(OSError):
        if f"{folder}/".encode() in (entry / "cmdline").read_bytes():
          found.append(int(entry.name))
  return found

