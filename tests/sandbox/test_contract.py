"""What every backend promises, on the real thing: `base.Sandbox`, one test each.

What only one backend has is in the test file of that backend.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from sandbox.backends import (
    Bounds,
    SandboxError,
    SandboxLost,
    check_backend,
    open_sandbox,
)
from tests import kubernetes_node
from tests.sandbox import started


@pytest.fixture(
    params=[
        "bubblewrap",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("docker", "kubernetes")),
    ]
)
def backend(request) -> str:
  if request.param != "bubblewrap":
    request.getfixturevalue({"docker": "docker_host"}.get(request.param, request.param))
  check_backend(request.param)
  return request.param


@pytest.fixture
def run(backend):
  return partial(started.run, backend=backend)


def test_files_and_commands(run):
  async def body(sandbox):
    result = await sandbox.exec("pwd; cat a/in.txt; echo err >&2; exit 3", 5)
    assert (result.output, result.exit_code) == ("/workspace\nhello\nerr\n", 3)
    await sandbox.write("b/c/out.bin", b"\x00\xff")
    assert await sandbox.read("b/c/out.bin") == b"\x00\xff"
    assert await sandbox.read("a/in.txt", 2) == b"he"
    entries = {e["path"]: e["type"] for e in await sandbox.list()}
    assert entries == {
        "a": "dir", "a/in.txt": "file", "b": "dir", "b/c": "dir", "b/c/out.bin": "file",
        "run": "file",
    }  # fmt: skip
    assert (await sandbox.exec("./run", 5)).output == "ran\n"
    await sandbox.exec("rm a/in.txt; echo new > d.txt", 5)
    assert await sandbox.diff() == {
        "a/in.txt": "removed", "b/c/out.bin": "added", "d.txt": "added"
    }  # fmt: skip
    for path in ("nowhere", "a", "x\0y", "\udc80"):
      with pytest.raises(SandboxError):
        await sandbox.read(path)
    assert (await sandbox.exec("mkfifo p; true", 5)).exit_code == 0
    with pytest.raises(SandboxError):
      await asyncio.wait_for(sandbox.read("p"), 5)

  run(body, {"a/in.txt": b"hello\n", "run": b"#!/bin/sh\necho ran\n"})


def test_nothing_of_the_host_is_inside(run, tmp_path, monkeypatch):
  monkeypatch.setenv("CANARY_TOKEN", "canary-6d1f")
  (tmp_path / "secret.txt").write_text("canary-6d1f")

  async def body(sandbox):
    seen = await sandbox.exec(
        f"env; cat {tmp_path}/secret.txt /root/* /home/* /etc/shadow;"
        " cat /proc/*/environ /proc/*/cmdline; ls /; hostname", 10
    )
    assert "canary" not in seen.output
    assert seen.output.splitlines()[-1] == "sandbox"
    env = await sandbox.exec("env | grep -v -E '^(_|SHLVL|PWD|CLAWGYM_REPORT)='", 5)
    names = {line.partition("=")[0] for line in env.output.splitlines()}
    assert names == {"CLAWGYM_NOW", "HOME", "LANG", "PATH", "TZ"}
    assert "CLAWGYM_NOW=2026-01-05T09:00:00Z" in env.output
    who = await sandbox.exec("id -un; id -u", 5)
    assert who.output.startswith("user\n") and who.output != "user\n0\n"
    network = await sandbox.exec(
        "python3 -c \"import socket; socket.create_connection(('1.1.1.1', 53), 2)\"", 10
    )
    assert "unreachable" in network.output
    names = await sandbox.exec(
        "python3 -c \"import socket; socket.getaddrinfo('example.org', 80)\"", 10
    )
    assert "gaierror" in names.output
    # A virtual machine's AF_VSOCK leads to the host that runs it.
    families = await sandbox.exec(
        'python3 -c "\nimport socket\nfor family in (1, 2, 10, 16, 17, 40):\n'
        "  try: print(socket.socket(family, 3 if family == 16 else 1).family)\n"
        '  except OSError as error: print(error.errno)\n"', 10
    )
    assert families.output.split() == ["1", "2", "10", "16", "1", "1"]  # EPERM
    root = await sandbox.exec("touch /x /etc/x /dev/x /usr/x /proc/x /sys/x", 5)
    assert root.output.count("cannot touch") == 6
    caps = await sandbox.exec("grep CapEff /proc/self/status; unshare -Ur id", 5)
    assert "CapEff:\t0000000000000000" in caps.output
    assert "unshare failed" in caps.output

  run(body, now="2026-01-05T09:00:00Z")


def test_the_server_can_not_be_killed_or_stopped_from_inside(run):
  async def body(sandbox):
    await sandbox.exec("kill -9 1; kill -STOP 1; kill -INT 1; kill -9 -1", 5)
    assert (await sandbox.exec("echo alive", 5)).output == "alive\n"
    fds = await sandbox.exec("ls /proc/1/fd; head -c 1 /proc/1/mem", 5)
    assert fds.output.count("Permission denied") == 2

  run(body)


def test_output_keeps_head_and_tail_and_never_blocks(run, backend):
  async def body(sandbox):
    result = await sandbox.exec("echo first; yes | head -c 20000000; echo last", 20)
    assert result.output.startswith("first\ny\n") and result.output.endswith("last\n")
    assert result.output_bytes == 20_000_000 + len("first\nlast\n")
    assert len(result.output) < 70_000 and "bytes left out" in result.output
    started = time.monotonic()
    held = await sandbox.exec("(while sleep .1; do echo x; done) & echo go", 20)
    most = 5 if backend == "bubblewrap" else 10
    assert held.output.startswith("go") and time.monotonic() - started < most
    closed = await sandbox.exec("exec >&- 2>&-; sleep .2", 5)
    assert (closed.output, closed.exit_code) == ("", 0)

  run(body)


def test_a_command_that_is_given_up_ends_with_what_it_started(run):
  async def body(sandbox):
    giving_up = asyncio.create_task(
        sandbox.exec("setsid sleep 1000 & sleep 1000; echo never > late", 600)
    )
    while len(await sandbox.processes()) < 3:
      await asyncio.sleep(0.02)
    giving_up.cancel()
    with pytest.raises(asyncio.CancelledError):
      await giving_up
    assert await sandbox.processes() == []
    assert await sandbox.diff() == {}
    assert (await sandbox.exec("echo on", 5)).output == "on\n"

  run(body)


@pytest.mark.parametrize("pty", [False, True])
def test_a_spawn_that_is_given_up_leaves_no_command(run, pty):
  async def body(sandbox):
    await sandbox.spawn("sleep 1000; true")
    giving_up = asyncio.create_task(sandbox.spawn("sleep 1000; true", pty=pty))
    await asyncio.sleep(0)  # asked, and not answered
    giving_up.cancel()
    with pytest.raises(asyncio.CancelledError):
      await giving_up
    while len(await sandbox.processes()) != 2:  # the kept shell and its sleep
      await asyncio.sleep(0.02)

  run(body)


def test_a_timeout_kills_the_whole_tree(run):  # P27
  async def body(sandbox):
    result = await sandbox.exec(
        "sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &); while :; do :; done", 1
    )
    assert result.timed_out and result.exit_code == 137
    assert await sandbox.processes() == []

  run(body)


def test_orphans_leave_no_zombies(run):  # P28
  async def body(sandbox):
    orphans = await sandbox.exec(
        'python3 -c "\nimport os\nfor n in range(200):\n  if os.fork() == 0:\n'
        '    if os.fork() == 0: os._exit(0)\n    os._exit(0)\n  os.wait()\n"', 30
    )
    assert orphans.exit_code == 0
    for _ in range(50):  # the last of them may still be ending
      if not await sandbox.processes():
        return
      await asyncio.sleep(0.1)
    raise AssertionError(await sandbox.processes())

  run(body)


def test_a_fork_bomb_is_contained(run, backend):
  async def body(sandbox):
    async with open_sandbox(backend) as other:
      await other.start()
      bomb = asyncio.create_task(sandbox.exec("f() { f | f & f; }; f", 2))
      await asyncio.sleep(1)
      assert (await other.exec("echo calm", 10)).output == "calm\n"
      await bomb
    await sandbox.quiet()
    assert (await sandbox.exec("echo fine", 10)).output == "fine\n"
    assert await sandbox.processes() == []

  run(body, bounds=Bounds(processes=32))


def test_a_disk_fill_is_contained(run):
  async def body(sandbox):
    result = await sandbox.exec(
        "for i in 1 2 3 4; do head -c 5000000 /dev/zero > f$i || echo full; done;"
        " for i in $(seq 2000); do : > n$i; done 2>&1 | tail -n 1", 20
    )
    assert result.output.count("full") == 3
    assert "No space left on device" in result.output
    with pytest.raises(SandboxError) as error:
      await sandbox.write("more", b"x" * 1_000_000)
    assert error.value.code == errno.ENOSPC
    assert len(await sandbox.snapshot()) < 16 << 20
    await sandbox.exec("rm -rf *; truncate -s 8M s1 s2 s3 s4 s5 s6", 5)
    with pytest.raises(SandboxError) as error:
      await sandbox.snapshot()
    assert error.value.code == errno.EFBIG
    for place in ("/tmp", "/dev/shm"):
      filled = await sandbox.exec(
          f"for i in $(seq 14); do head -c 9M /dev/zero > {place}/$i || exit 7; done;"
          f" rm {place}/*", 20
      )
      assert filled.exit_code == 7, place

  run(body, bounds=Bounds(disk=8 << 20, inodes=1000, file_size=10 << 20))


def test_a_memory_hog_is_contained(run):
  hog = "x = bytearray(100 << 20); import time; time.sleep(30)"

  async def body(sandbox):
    one = await sandbox.exec("python3 -c 'x = bytearray(1 << 30)'", 20)
    assert "MemoryError" in one.output and one.exit_code == 1
    many = await sandbox.exec(
        f'for i in 1 2 3 4 5 6; do python3 -c "{hog}" & done; wait', 30
    )
    assert many.out_of_memory and many.exit_code == 137
    assert (await sandbox.exec("echo fine", 5)).output == "fine\n"
    assert await sandbox.processes() == []

  run(body, bounds=Bounds(memory=256 << 20))


def test_killing_the_server_for_memory_is_no_loss(run, tmp_path, backend):
  """P47: full sockets are no process's memory, and this program is smaller than the
  server: the kernel kills that one first."""
  if backend == "kubernetes":
    pytest.skip("the stand-in has no kubelet that counts memory")
  source = tmp_path / "hog.c"
  source.write_text(
      "#include <fcntl.h>\n#include <sys/socket.h>\n#include <unistd.h>\n"
      "static char data[32768];\n"
      "int main(void) {\n"
      "  for (int i = 0; i < 30 && fork() != 0; i++);\n"
      "  for (int p[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0;)\n"
      "    for (int i = 0; i < 2; i++) {\n"
      "      fcntl(p[i], F_SETFL, O_NONBLOCK);\n"
      "      while (write(p[i], data, sizeof data) > 0);\n"
      "    }\n"
      "  pause();\n"
      "}\n"
  )
  compiler = ["cc", "-O2", "-static", "-s", "-o", tmp_path / "hog", source]
  subprocess.run(compiler, check=True)

  async def body(sandbox):
    if not sandbox.limits["memory"].startswith("cgroup"):
      pytest.skip("no cgroup counts the kernel's memory here")
    await sandbox.exec("chmod +x hog", 5)
    for _ in range(3):
      try:
        await sandbox.exec("./hog & sleep 5", 20)  # all of it may also be contained
      except SandboxError as error:
        assert error.code == errno.ENOMEM
        with pytest.raises(SandboxError, match="out of memory"):
          await sandbox.snapshot()
        break

  bounds = Bounds(memory=48 << 20, disk=2 << 20, inodes=200)
  run(body, {"hog": (tmp_path / "hog").read_bytes()}, bounds=bounds)


def test_background_commands(run):
  async def body(sandbox):
    number = await sandbox.spawn("echo one; read line; echo got $line; exit 4")
    assert number == 1
    first = await sandbox.poll(number, 0.5)
    assert (first.output, first.exit_code) == ("one\n", None)
    await sandbox.send(number, b"two\n")
    rest = await sandbox.poll(number, 10)
    assert (rest.output, rest.exit_code) == ("got two\n", 4)
    counter = await sandbox.spawn("wc -c")
    await sandbox.send(counter, b"x" * 100_000, eof=True)
    assert (await sandbox.poll(counter, 10)).output.strip() == "100000"
    terminal = await sandbox.spawn("test -t 0 && echo a terminal", pty=True)
    ended = await sandbox.poll(terminal, 10)
    assert "a terminal" in ended.output and ended.exit_code == 0
    tree = await sandbox.spawn("setsid sleep 1000 & sleep 1000")
    await asyncio.sleep(0.3)
    await sandbox.kill(tree)
    assert (await sandbox.poll(tree, 10)).exit_code == 137
    assert await sandbox.processes() == []

  run(body)


def test_programs_inside_report(run):
  program = (
      "import json, os, socket\n"
      "def say(line):\n"
      "  s = socket.socket(socket.AF_UNIX)\n"
      "  s.connect(os.environ['CLAWGYM_REPORT'])\n"
      "  s.sendall(line + b'\\n')\n"
      "  return s.makefile().readline()\n"
      "for n in range(3):\n"
      "  line = json.dumps({'service': 'outbox', 'data': {'n': n}}).encode()\n"
      "  print(say(line), end='')\n"
      "print(say(b'x' * 100_000)[:6])\n"
  )

  async def body(sandbox):
    said = await sandbox.exec("python3 report.py", 20)
    assert said.output == "ok\nok\nok\nerror:\n"
    assert [r["data"] for r in sandbox.reports] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert {r["service"] for r in sandbox.reports} == {"outbox"}
    assert all(0 <= r["seconds"] < 60 for r in sandbox.reports)

  run(body, {"report.py": program.encode()})


def test_a_port_inside_is_a_socket_outside(run, tmp_path):
  place = tmp_path / "gateway.sock"
  with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(str(place))
    listener.listen()
    threading.Thread(target=_echo, args=(listener,), daemon=True).start()

    async def body(sandbox):
      said = await sandbox.exec(
          'python3 -c "\nimport socket\n'
          "s = socket.create_connection(('127.0.0.1', 8080), 5)\n"
          "s.sendall(b'x' * 1_000_000)\ns.shutdown(socket.SHUT_WR)\n"
          'print(len(s.makefile(\'rb\').read()))\n"', 20
      )
      assert said.output == "1000000\n"

    run(body, forward={8080: place})


def _echo(listener: socket.socket) -> None:
  with contextlib.suppress(OSError):
    while True:
      connection, _ = listener.accept()
      threading.Thread(target=_echo_one, args=(connection,), daemon=True).start()


def _echo_one(connection: socket.socket) -> None:
  with connection, contextlib.suppress(OSError):
    received = b""
    while data := connection.recv(1 << 16):
      received += data
    connection.sendall(received)


def test_it_says_what_bounds_it(run):
  async def body(sandbox):
    assert sandbox.limits.keys() >= {"processes", "memory", "disk"}
    assert sandbox.limits["disk"] == "tmpfs"

  run(body)


def test_many_at_once_leave_nothing_behind(backend):
  async def one():
    async with open_sandbox(backend) as sandbox:
      await sandbox.start({"n": b"1"})
      await sandbox.exec("sleep 1000 & setsid sleep 1000 & echo $!", 10)
      return _server_pid(backend, sandbox)

  async def whole():
    return await asyncio.gather(*(one() for _ in range(8)))

  before = set(os.listdir("/tmp"))
  pids = asyncio.run(whole())
  assert len(set(pids)) == 8 and all(map(_ends, pids))
  assert not [name for name in set(os.listdir("/tmp")) - before if "sandbox" in name]


def test_a_lifetime_ends(run, backend):
  async def body(sandbox):
    with contextlib.suppress(SandboxLost):
      await sandbox.exec("sleep 30", 20)
    with pytest.raises(SandboxLost):
      await sandbox.exec("echo", 5)

  life, grace = (0.5, 2) if backend == "bubblewrap" else (1.5, 5)
  run(body, bounds=Bounds(lifetime_seconds=life, grace_seconds=grace))


def test_a_stopped_sandbox_kills_and_answers(run, backend):
  async def body(sandbox):
    pid = _server_pid(backend, sandbox)
    running = asyncio.create_task(sandbox.exec("sleep 60", 60))
    await asyncio.sleep(0.2)
    await sandbox.stop()
    with pytest.raises(SandboxLost, match="stopped"):
      await running
    await sandbox.stop()
    assert _ends(pid)

  run(body)


def test_a_server_that_hangs_is_lost_within_the_bound(run, backend):  # P33
  async def body(sandbox):
    pid = _server_pid(backend, sandbox)
    os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(SandboxLost, match="in time"):
      await sandbox.exec("echo", 0.5)
    with pytest.raises(SandboxLost):
      await sandbox.read("x")
    assert 1.4 < time.monotonic() - started < 5
    await sandbox.stop()
    assert _ends(pid)

  run(body, bounds=Bounds(grace_seconds=1))


def test_a_server_that_dies_is_lost_at_once(run, backend):
  async def body(sandbox):
    running = asyncio.create_task(sandbox.exec("sleep 60", 60))
    await asyncio.sleep(0.2)
    started = time.monotonic()
    os.kill(_server_pid(backend, sandbox), signal.SIGKILL)
    with pytest.raises(SandboxLost):
      await running
    assert time.monotonic() - started < 10

  run(body)


def test_a_start_can_be_cancelled_at_any_point(backend):
  step, count = (0.06, 8) if backend == "docker" else (0.001, 15)

  async def one(delay):
    async with open_sandbox(backend) as sandbox:
      starting = asyncio.create_task(sandbox.start({"a": b"1"}))
      await asyncio.sleep(delay)
      starting.cancel()
      done, _ = await asyncio.wait([starting], timeout=20)
      assert done

  async def whole():
    for number in range(count):
      await one(number * step)

  asyncio.run(whole())


def _server_pid(backend: str, sandbox) -> int:
  """The host's process id of what is process 1 inside."""
  if backend == "docker":
    return sandbox._daemon.client.inspect_container(sandbox.name)["State"]["Pid"]
  is_pod = backend == "kubernetes"
  pid = kubernetes_node.PROCESSES[sandbox.name] if is_pod else sandbox.pid
  for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
    return int(child)
  return pid


def _ends(pid: int) -> bool:
  """Whether the process is gone, or dead and not yet reaped, in a moment."""
  for _ in range(100):
    try:
      stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
      return True
    if stat.rpartition(b")")[2].split()[0] in (b"Z", b"X"):
      return True
    time.sleep(0.05)
  return False
