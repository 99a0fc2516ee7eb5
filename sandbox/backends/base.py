"""What every sandbox promises, whatever runs it.

A sandbox has one workspace, `/workspace`, which is the working directory of
every command. Files enter and leave as snapshots, streams whose format only
this module and the server know: no host directory is ever mounted writable,
and nothing is extracted on the host. Every call has a bound
in seconds and ends in a result, a `SandboxError` (the request was refused: no
such file, disk full) or a `SandboxLost` (the platform lost the sandbox, which
code inside it cannot bring about).
"""

from __future__ import annotations

import abc
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from clawgym_jax.contracts.workspace import FOLDER_MODE, TIME, file_mode

Files = dict[str, bytes]

WORKSPACE = "/workspace"


@dataclass(frozen=True)
class Bounds:
  """Limits of one sandbox; bytes, seconds and counts.

  `memory` bounds the resident memory of all processes together and the
  address space of each one; `disk` and `inodes` each writable directory.
  """

  memory: int = 1 << 30
  processes: int = 64
  disk: int = 64 << 20
  inodes: int = 8192
  file_size: int = 64 << 20
  open_files: int = 256
  cpu_seconds: int = 300
  boot_seconds: float = 30.0
  lifetime_seconds: float = 3600.0
  grace_seconds: float = 10.0  # beyond a call's own time, for its answer
  output: int = 32 << 10  # kept of a command's output at each end


@dataclass(frozen=True)
class ExecResult:
  """A finished command.

  Attributes:
    output: stdout and stderr merged, in full if `output_bytes` is at most
      twice the bound, else its head and tail around a note of what is left out.
    exit_code: as a shell gives it: 128 + n where signal n ended it.
    timed_out: it was killed, with everything it had started.
    out_of_memory: everything in the sandbox was killed for memory.
    output_bytes: how much it wrote before it ended.
    seconds: wall time.
  """

  output: str
  exit_code: int
  timed_out: bool = False
  out_of_memory: bool = False
  output_bytes: int = 0
  seconds: float = 0.0


@dataclass(frozen=True)
class Progress:
  """What a background command did since it was last asked.

  Attributes:
    output: what it wrote meanwhile, bounded as in `ExecResult`.
    exit_code: None while it runs.
    output_bytes: how much it wrote meanwhile.
    left_out: how much of that is not in `output`.
  """

  output: str
  exit_code: int | None
  output_bytes: int = 0
  left_out: int = 0


class SandboxError(Exception):
  """The sandbox refused a request; the text says why. `code` is an errno."""

  def __init__(self, message: str, code: int = 0):
    super().__init__(message)
    self.code = code


class SandboxLost(Exception):
  """The sandbox is gone or does not answer; no fault of the code inside."""


class Sandbox(abc.ABC):
  """One sandbox; use it as `async with`, or call `stop` in a `finally`.

  Attributes:
    reports: what programs inside reported, in order of arrival, each
      {"service": str, "seconds": float since the start, "data": dict}; those of
      a fork begin with its origin's, and its start is the origin's.
    bad_reports: how many more came that were none, and were dropped.
    limits: what bounds it here: "processes", "memory" and "disk" -> by what,
      such as "cgroup v1" or "rlimit".
  """

  reports: list[dict]
  bad_reports: int
  limits: dict[str, str]
  _initial: Files | Path

  @abc.abstractmethod
  async def start(self, files: Files | Path = {}) -> Self:
    """Boots and fills `/workspace` from a dict or a host directory.

    Links are left out. Files and folders have the times and modes of
    `contracts.workspace`, whatever they have on the host.
    """

  @abc.abstractmethod
  async def exec(self, command: str, timeout: float = 60.0) -> ExecResult:
    """Runs `command` by a shell in /workspace for at most `timeout` seconds.

    Given up (cancelled), it ends with all that it started before the next call
    is answered.
    """

  @abc.abstractmethod
  async def spawn(self, command: str, *, pty: bool = False) -> int:
    """Starts `command` in the background; its number, from 1. It ends with the
    sandbox at the latest, and where the call is given up (cancelled) at once."""

  @abc.abstractmethod
  async def poll(self, number: int, wait: float = 0.0) -> Progress:
    """What it wrote since the last poll; waits at most `wait` seconds for its end."""

  @abc.abstractmethod
  async def send(self, number: int, data: bytes, *, eof: bool = False) -> None:
    """Writes to its standard input or terminal, and closes it where `eof`."""

  @abc.abstractmethod
  async def kill(self, number: int) -> None:
    """Kills the command and all it started."""

  @abc.abstractmethod
  async def read(self, path: str, limit: int = 1 << 20) -> bytes:
    """At most `limit` bytes of a regular file; relative to /workspace."""

  @abc.abstractmethod
  async def write(self, path: str, data: bytes) -> None:
    """Writes a file and the directories above it."""

  @abc.abstractmethod
  async def list(self, path: str = ".") -> list[dict]:
    """Entries below `path`: {path, type: file|dir|link|other, size}, sorted."""

  @abc.abstractmethod
  async def quiet(self) -> None:
    """Kills every process inside, so that the files change no more."""

  @abc.abstractmethod
  async def snapshot(self) -> bytes:
    """The workspace: files, directories and links as links."""

  @abc.abstractmethod
  async def restore(self, snapshot: bytes, root: str = WORKSPACE) -> None:
    """Extracts a snapshot below `root`; links that would leave it are dropped."""

  @abc.abstractmethod
  async def fork(self) -> Self:
    """A second, started sandbox that goes on from the state of this one.

    It has the same settings, a copy of all files and links that can be written
    here, with their modes and times (whole seconds), and the reports so far. Pipes
    and processes stay behind; hard links are files of their own.
    """

  @abc.abstractmethod
  async def stop(self) -> None:
    """Kills everything in the sandbox and waits for it; never raises."""

  async def diff(self) -> dict[str, str]:
    """Path -> added | removed | changed, of regular files, since `start`."""
    return self.changes(await self.snapshot())

  def changes(self, snapshot: bytes) -> dict[str, str]:
    """`diff`, for a snapshot in hand."""
    now, initial = unpack(snapshot), gather(self._initial)
    changes = {path: "added" for path in now.keys() - initial.keys()}
    changes |= {path: "removed" for path in initial.keys() - now.keys()}
    both = now.keys() & initial.keys()
    changes |= {p: "changed" for p in both if now[p] != initial[p]}
    return dict(sorted(changes.items()))

  async def __aenter__(self) -> Self:
    return self

  async def __aexit__(self, *exception: object) -> None:
    await self.stop()


def gather(source: Files | Path) -> Files:
  """The regular files of a host directory, or `source` itself; no links."""
  if isinstance(source, dict):
    return dict(source)
  files: Files = {}
  for folder, _, names in os.walk(source):
    below = os.path.relpath(folder, source)
    for name in names:
      path = os.path.join(folder, name)
      if stat.S_ISREG(os.lstat(path).st_mode):
        with open(path, "rb") as file:
          files[name if below == "." else f"{below}/{name}"] = file.read()
  return dict(sorted(files.items()))


ENTRY = struct.Struct("!cIqIQ")  # kind, mode, seconds, bytes of name, of data
KINDS = {b"f": "file", b"d": "dir", b"l": "link", b"o": "other"}  # others are listed only
_LETTERS = {kind: letter for letter, kind in KINDS.items()}


@dataclass(frozen=True)
class Entry:
  """One of a snapshot; `data` is a file's bytes or a link's target.

  The folder that the snapshot is of is in it as `.`.
  """

  name: str
  data: bytes = b""
  kind: str = "file"
  mode: int = 0o644
  seconds: int = TIME


def pack(source: Files | Path) -> bytes:
  """Files as a snapshot, or a host directory with its folders, as `Sandbox.start`
  shows them; the same bytes for the same source."""
  files = gather(source)
  names = set(_folders(source)) if isinstance(source, Path) else set()
  for name in files:
    while (name := os.path.dirname(name)) and name not in names:
      names.add(name)
  folders = {name: Entry(name, kind="dir", mode=FOLDER_MODE) for name in {".", *names}}
  entries = {name: Entry(name, d, mode=file_mode(d)) for name, d in files.items()}
  return pack_entries(entry for _, entry in sorted((folders | entries).items()))


def _folders(source: Path) -> Iterator[str]:
  for parent, folders, _ in os.walk(source):
    for name in folders:
      path = os.path.join(parent, name)
      if not os.path.islink(path):
        yield os.path.relpath(path, source)


def pack_entries(entries: Iterable[Entry]) -> bytes:
  """A snapshot of `entries`, in their order."""
  parts = []
  for entry in entries:
    name, letter = os.fsencode(entry.name), _LETTERS[entry.kind]
    sizes = len(name), len(entry.data)
    parts += [ENTRY.pack(letter, entry.mode, entry.seconds, *sizes), name, entry.data]
  return b"".join([*parts, ENTRY.pack(b"e", 0, 0, 0, 0)])


def in_folders(snapshots: Iterable[tuple[str, bytes]]) -> bytes:
  """One snapshot of several, each in the folder that it is given with."""
  parts = []
  for folder, snapshot in snapshots:
    name = os.fsencode(folder)
    parts += [ENTRY.pack(b"d", FOLDER_MODE, TIME, len(name), 0), name]
    for letter, mode, seconds, below, data in _raw_entries(snapshot):
      if below not in (b"", b"."):
        size = len(name) + 1 + len(below)
        head = ENTRY.pack(letter, mode, seconds, size, len(data))
        parts += [head, name, b"/", below, data]
  return b"".join([*parts, ENTRY.pack(b"e", 0, 0, 0, 0)])


def kinds(snapshot: bytes) -> set[str]:
  """Which kinds of entries a snapshot has."""
  return {KINDS[letter] for letter, *_ in _raw_entries(snapshot)}


def unpack(snapshot: bytes) -> Files:
  """The regular files of a snapshot; links are not followed."""
  return {
      os.fsdecode(name): bytes(data)
      for letter, _, _, name, data in _raw_entries(snapshot)
      if letter == b"f"
  }


def unpack_entries(snapshot: bytes) -> Iterator[Entry]:
  """All of a snapshot; `ValueError` if it is none."""
  for letter, mode, seconds, name, data in _raw_entries(snapshot):
    yield Entry(os.fsdecode(name), bytes(data), KINDS[letter], mode, seconds)


def _raw_entries(
    snapshot: bytes,
) -> Iterator[tuple[bytes, int, int, bytes, memoryview]]:
  """Letter, mode, seconds, name and data of each entry; `ValueError` if it is none."""
  at, view = 0, memoryview(snapshot)
  try:
    while True:
      letter, mode, seconds, name_size, size = ENTRY.unpack_from(view, at)
      at += ENTRY.size
      if letter == b"e":
        return
      name = bytes(view[at : at + name_size])
      at += name_size + size
      if at > len(view) or letter not in KINDS:
        break
      yield letter, mode, seconds, name, view[at - size : at]
  except struct.error:
    pass
  raise ValueError("this is no snapshot, or not the whole of one")
