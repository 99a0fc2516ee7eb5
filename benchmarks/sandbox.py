"""How fast sandboxes start, answer, end, and how small they are, by backend.

  first       from `start` with 8 files to the result of the first tool call (a
              command), one sandbox at a time
  read, exec  a tool call's round trip: a file is read, a command is run
  bash        the same command, and `true`, by a bash that a program in the same
              sandbox starts: no exec can be faster than that
  cycle       start, run a command, stop: a second, at the best concurrency
  verify      start, run, snapshot, stop, judge in a fresh sandbox: likewise
  verify warm the same with one sandbox of trusted checks, a fork per state
  alive       that many at once, each after a command: memory that is nobody
              else's (Private_*) and the fair share of all (Pss) a sandbox, from
              smaps_rollup of all its processes (a docker daemon's shims are not
              its own); and what this controller grew by

Backends are measured one after the other in one process; the ratios are to the
first backend named. docker is measured at the daemon of DOCKER_HOST; without it, at
one of this run's own with an image made of this machine, which needs root.

  python -m benchmarks.sandbox [--backends=bubblewrap,docker] [--json]
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import Reference, Task, save_task
from sandbox.backends import Bounds, Sandbox, check_backend, open_sandbox
from sandbox.backends.labels import labelled
from sandbox.verify import verify
from sandbox.verify.checks import State
from sandbox.verify.many import Verifier

_BACKENDS = flags.DEFINE_list("backends", ["bubblewrap"], "In this order.")
_SAMPLES = flags.DEFINE_integer("samples", 100, "Starts, each with 5 calls.", 1)
_SECONDS = flags.DEFINE_float("seconds", 4.0, "Of each concurrency.", 0.1)
_CONCURRENCY = flags.DEFINE_list("concurrency", ["1", "2", "3", "4", "8"], "To try.")
_ALIVE = flags.DEFINE_integer(
    "alive", 1000, "Sandboxes at once; of docker an eighth, of 64 at most.", 1
)

_COMMAND = "cat d0/file0.txt"
_BASH = '''
import os, sys, time
for command in sys.argv[2:]:
  times = []
  for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    out, into = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, into, 1), (os.POSIX_SPAWN_CLOSE, out)]
    pid = os.posix_spawn(
        "/bin/bash", ["bash", "-c", command], os.environ, file_actions=actions)
    os.close(into)
    while os.read(out, 65536): pass
    os.waitpid(pid, 0)
    os.close(out)
    times.append(time.perf_counter() - start)
  print(sorted(times)[len(times) // 2] * 1e3)
'''
_FILES = {f"d{i % 3}/file{i}.txt": b"x" * 500 for i in range(8)}
_CHECK = b'''
def grade(workspace, final_message, transcript):
  with open(workspace + "/out.txt") as file:
    return {"right": float(file.read() == "done\\n")}
'''


def main() -> dict[str, Any]:
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
  backends = _BACKENDS.value
  with contextlib.ExitStack() as stack:
    kinds = [backend.partition("?")[0] for backend in backends]
    if "docker" in kinds and not os.environ.get("DOCKER_HOST"):
      stack.enter_context(_own_daemon())
    for backend in backends:
      check_backend(backend)
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    task = save_task(
        Path(folder) / "task",
        Task(
            id="task", instruction="Write done to out.txt.", family="bench",
            split="train", category="files", operations=("write",),
            provenance={"generator": "procedural-benchmark"},
        ),
        workspace=_FILES, checks={"check.py": _CHECK}, turns=[Reference([], "")],
    )  # fmt: skip
    results = {name: asyncio.run(_measure(name, task)) for name in backends}
  base = results[backends[0]]
  for name in backends[1:]:
    results[f"{name} / {backends[0]}"] = {
        key: round(value / base[key], 2)
        for key, value in results[name].items()
        if isinstance(value, float) and base.get(key) and not key.startswith("alive")
    }
  for name, figures in results.items():
    print(name)
    for key, value in figures.items():
      print(f"  {key:24}", f"{value:.3f}" if isinstance(value, float) else value)
  return results


@contextlib.contextmanager
def _own_daemon() -> Iterator[None]:
  """A docker daemon that has the default image, at DOCKER_HOST meanwhile."""
  from benchmarks import docker_daemon  # the docker SDK, for this alone
  from sandbox.backends import docker_image

  try:
    with docker_daemon.daemon() as found:
      docker_image.build(found.client)
      os.environ["DOCKER_HOST"] = found.url
      try:
        yield
      finally:
        del os.environ["DOCKER_HOST"]
  except docker_daemon.CannotRun as why:
    raise UserError(f"{why}; or name a daemon by DOCKER_HOST") from None


async def _measure(backend: str, task: Task) -> dict[str, Any]:
  figures: dict[str, Any] = {}
  async with open_sandbox(backend) as sandbox:  # what is done once is not counted
    await sandbox.start(_FILES)
    figures["limits"] = ", ".join(f"{k}: {v}" for k, v in sandbox.limits.items())
  few = backend.partition("?")[0] != "bubblewrap"
  await _latencies(backend, _SAMPLES.value // (5 if few else 1), figures)

  async def run() -> None:
    async with open_sandbox(backend) as sandbox:
      await sandbox.start(_FILES)
      await sandbox.exec(_COMMAND, 30)

  async def work() -> bytes:
    async with open_sandbox(backend) as sandbox:
      await sandbox.start(_FILES)
      await sandbox.exec("echo done > out.txt", 30)
      return await sandbox.snapshot()

  async def run_and_verify() -> None:
    outcome = await verify(task, await work(), "", [], backend=backend)
    assert outcome.score == 1.0, outcome

  warm: list[Verifier] = []  # those that judge nothing just now

  async def run_and_verify_warm() -> None:
    snapshot = await work()
    verifier = warm.pop() if warm else Verifier(task, backend=backend)
    outcome = await verifier.judge(State(snapshot, "", []))
    warm.append(verifier)
    assert outcome.score == 1.0, outcome

  await _rates("cycle", run, figures)
  await _rates("verify", run_and_verify, figures)
  await _rates("verify warm", run_and_verify_warm, figures)
  for verifier in warm:
    await verifier.close()
  alive = min(64, _ALIVE.value // 8) if few else _ALIVE.value
  await _memory(backend, max(1, alive), figures)
  return figures


async def _latencies(backend: str, samples: int, figures: dict[str, Any]) -> None:
  times: dict[str, list[float]] = {"first": [], "read": [], "exec": [], "stop": []}

  async def timed(name: str, call: Awaitable[Any]) -> None:
    start = time.perf_counter()
    await call
    times[name].append(time.perf_counter() - start)

  async def first(sandbox: Sandbox) -> None:
    await sandbox.start(_FILES)
    await sandbox.exec(_COMMAND, 30)

  for _ in range(max(2, samples)):
    async with open_sandbox(backend) as sandbox:
      await timed("first", first(sandbox))
      for _ in range(5):
        await timed("read", sandbox.read("d0/file0.txt"))
        await timed("exec", sandbox.exec(_COMMAND, 30))
      await timed("stop", sandbox.stop())
  for name, values in times.items():
    values.sort()
    for part in (50, 99):
      at = min(len(values) - 1, len(values) * part // 100)
      figures[f"{name} p{part} ms"] = values[at] * 1e3
  async with open_sandbox(backend) as sandbox:
    await sandbox.start({**_FILES, "bash.py": _BASH.encode()})
    said = await sandbox.exec(f"python3 bash.py {5 * samples} true '{_COMMAND}'", 60)
    both = map(float, said.output.split())
    figures["bash true p50 ms"], figures["bash p50 ms"] = both


async def _rates(
    name: str, cycle: Callable[[], Awaitable[None]], figures: dict[str, Any]
) -> None:
  """The cycles a second at the concurrency that has most of them."""
  best, best_at = 0.0, 0
  for concurrency in map(int, _CONCURRENCY.value):
    done, start = 0, time.perf_counter()

    async def work() -> None:
      nonlocal done
      while time.perf_counter() - start < _SECONDS.value:
        await cycle()
        done += 1

    async with asyncio.TaskGroup() as group:
      for _ in range(concurrency):
        group.create_task(work())
    rate = done / (time.perf_counter() - start)
    if rate > best:
      best, best_at = rate, concurrency
  figures[f"{name} / s"] = best
  figures[f"{name} concurrency"] = best_at


async def _memory(backend: str, count: int, figures: dict[str, Any]) -> None:
  own = _rollup(os.getpid())["Private"]
  boxes = [
      open_sandbox(backend, bounds=Bounds(boot_seconds=120.0)) for _ in range(count)
  ]
  limit = asyncio.Semaphore(4)

  async def start(sandbox: Sandbox) -> None:
    async with limit:
      await sandbox.start(_FILES)
      await sandbox.exec(_COMMAND, 30)

  begun = time.perf_counter()
  try:
    await asyncio.gather(*(start(box) for box in boxes))
    figures["alive"] = count
    figures["alive after s"] = time.perf_counter() - begun
    answers = await asyncio.gather(*(box.read("d0/file0.txt") for box in boxes))
    assert all(answer == b"x" * 500 for answer in answers)
    total = {"Private": 0, "Pss": 0}
    for pid, mark in labelled().items():
      if mark.pid == os.getpid():
        for key, value in _rollup(pid).items():
          total[key] += value
    for key, value in total.items():
      figures[f"{key} MiB each"] = value / count / 2**20
    grown = _rollup(os.getpid())["Private"] - own
    figures["controller MiB each"] = grown / count / 2**20
  finally:
    await asyncio.gather(*(box.stop() for box in boxes))


def _rollup(pid: int) -> dict[str, int]:
  """Bytes of a process: its own alone, and its fair share of what is shared."""
  found = {"Private": 0, "Pss": 0}
  try:
    with open(f"/proc/{pid}/smaps_rollup") as file:
      for line in file:
        key, *rest = line.split()
        if key in ("Private_Clean:", "Private_Dirty:"):
          found["Private"] += int(rest[0]) << 10
        elif key == "Pss:":
          found["Pss"] += int(rest[0]) << 10
  except PermissionError:
    raise UserError("only root can see what memory sandboxes take: run it as root")
  except OSError:  # it ended
    pass
  return found


if __name__ == "__main__":
  cli.run(main)
