"""Programs that take more memory than is theirs, of every kind that there is: each is
bounded and said to be, a neighbour answers meanwhile, and nothing is left."""

from __future__ import annotations

import asyncio
import os
from functools import partial

import pytest

from sandbox.backends import cgroups, check_backend
from tests.sandbox import hostile
from tests.sandbox.hostile import MIB, outcome


@pytest.fixture(params=["bubblewrap", pytest.param("docker", marks=pytest.mark.slow)])
def backend(request) -> str:
  if request.param == "docker":
    request.getfixturevalue("docker_host")
  check_backend(request.param)
  return request.param


@pytest.fixture
def abuse(backend):
  return partial(hostile.abuse, backend)


# Each prints TOOK when it has half a gigabyte, four times what it may have.
MEMORY = {
    "one process": "x = bytearray(512 << 20)\nprint('TOOK')",
    "many processes": """
r, w = os.pipe()
for i in range(8):
  if os.fork() == 0:
    x = bytearray(64 << 20)
    os.write(w, b"x"); time.sleep(10); os._exit(0)
for i in range(8): os.read(r, 1)
print("TOOK")
""",
    "shared memory": """
m = mmap.mmap(-1, 512 << 20)
for at in range(0, len(m), 4096): m[at] = 1
print("TOOK")
""",
    "files in memory": """
held, block = [], bytes(1 << 20)
for i in range(16):
  held.append(call("memfd_create", b"x", 0))
  for _ in range(32): os.write(held[-1], block)
print("TOOK")
""",
    "threads without the first": """
def take():
  x = mmap.mmap(-1, 512 << 20)
  for at in range(0, len(x), 4096): x[at] = 1
  os.write(1, b"TOOK"); time.sleep(5)
threading.Thread(target=take).start()
call("exit", 0)
""",
    "files in /workspace and /tmp": """
for folder in ("/workspace", "/tmp", "/dev/shm"):
  for i in range(64):
    with open(f"{folder}/{i}", "wb") as file: file.write(bytes(8 << 20))
print("TOOK")
""",
    "semaphores": """
for i in range(10_000): call("semget", 0, 1000, 0o1600)
print("TOOK")
""",
}
# Of the kernel for no process: what only a cgroup counts.
OF_THE_KERNEL = {
    "sockets": """
for i in range(10):
  if os.fork() == 0: break
held = []
for i in range(120):
  held += socket.socketpair()
  for s in held[-2:]:
    s.setblocking(False)
    with contextlib.suppress(BlockingIOError):
      while True: s.send(bytes(32768))
if i == 119: time.sleep(3); os.write(1, b"TOOK")
""",
    "page tables": """
libc.mmap.restype = ctypes.c_void_p
for i in range(16):
  if os.fork() == 0: break
at = libc.mmap(None, ctypes.c_size_t(32 << 30), 1, 0x4022, -1, ctypes.c_long(0))
assert at not in (None, 2**64 - 1)
libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(32 << 30), 15)
for n in range(16 << 10): ctypes.c_char.from_address(at + (n << 21)).value
time.sleep(3); os.write(1, b"TOOK")
""",
}


def contained(said):
  assert "TOOK" not in said.splitlines(), said
  causes = ("out of memory", "MemoryError", "Cannot allocate", "No space left",
            "not permitted", "File too large")  # fmt: skip
  assert any(cause in said for cause in causes), said


@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_bounded(abuse, name):
  contained(abuse(lambda sandbox: outcome(sandbox, MEMORY[name])))


@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_bounded_without_a_cgroup(name, abuse, backend, monkeypatch):
  if backend != "bubblewrap":
    pytest.skip("docker has one")
  monkeypatch.setattr(cgroups, "make", lambda *_: None)

  async def body(sandbox):
    assert sandbox.limits["memory"] == "rlimit"
    return await outcome(sandbox, MEMORY[name])

  contained(abuse(body))


@pytest.mark.parametrize("name", OF_THE_KERNEL)
def test_memory_of_the_kernel_is_bounded(abuse, name):
  async def body(sandbox):
    if sandbox.limits["memory"] == "rlimit":
      pytest.skip("no cgroup counts the kernel's memory here")
    return await outcome(sandbox, OF_THE_KERNEL[name])

  contained(abuse(body))


def test_the_host_keeps_its_memory_for_tcp(abuse, backend):
  """What the kernel has for TCP is one amount for the whole machine."""
  code = """
listener = socket.create_server(("127.0.0.1", 0), backlog=128)
for i in range(3):
  if os.fork() == 0: break
held = []
with contextlib.suppress(OSError):
  for i in range(100):
    a = socket.create_connection(listener.getsockname(), 1)
    held += [a, listener.accept()[0]]
    for s in held[-2:]:
      s.setblocking(False)
      with contextlib.suppress(BlockingIOError):
        while True: s.send(bytes(65536))
print("full", flush=True); time.sleep(2)
"""

  def pages():
    with open("/proc/net/sockstat") as file:
      return next(int(line.split()[-1]) for line in file if line.startswith("TCP:"))

  async def body(sandbox):
    limit = sandbox.limits["memory"]
    if limit == "rlimit" or backend == "docker" and limit != "cgroup v2":
      pytest.skip("no cgroup counts sockets here: see the guide")
    before, most = pages(), 0
    task = asyncio.create_task(outcome(sandbox, code))
    while not task.done():
      most = max(most, pages() - before)
      await asyncio.wait([task], timeout=0.1)
    return await task, most

  said, most = abuse(body)
  assert "full" in said or "out of memory" in said
  assert most * os.sysconf("SC_PAGESIZE") < 256 * MIB
