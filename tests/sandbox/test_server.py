"""The server in a sandbox: background commands, terminals, overlays, cgroups, and
requests that are none."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import shutil
import time
from pathlib import Path

import pytest

from clawgym_jax.contracts.errors import UserError
from sandbox.backends import (
    Bounds,
    SandboxError,
    SandboxLost,
    build,
    cgroups,
    frames,
    labels,
    open_sandbox,
)
from sandbox.backends.base import pack_entries, unpack, unpack_entries
from sandbox.backends.frames import Op
from tests.sandbox.started import run


def test_background_commands():
  async def body(sandbox):
    cat = await sandbox.spawn("while read line; do echo got $line; done; exit 7")
    loud = await sandbox.spawn("echo first; yes | head -c 1000000; echo last; sleep 60")
    assert (cat, loud) == (1, 2)
    await sandbox.send(cat, b"one\ntwo\n")
    got = await sandbox.poll(cat, 0.3)
    assert (got.output, got.exit_code) == ("got one\ngot two\n", None)
    await sandbox.send(cat, b"three\n", eof=True)
    got = await sandbox.poll(cat, 5)
    assert (got.output, got.exit_code) == ("got three\n", 7)
    assert await sandbox.poll(cat) == type(got)("", 7)
    with pytest.raises(SandboxError, match="closed"):
      await sandbox.send(cat, b"x")
    got = await sandbox.poll(loud, 0.5)
    assert got.output.startswith("first\ny\n") and got.output.endswith("last\n")
    assert got.output_bytes == 1_000_000 + len("first\nlast\n")
    assert len(got.output.encode()) < 70_000 and got.left_out > 900_000
    assert (await sandbox.exec("echo meanwhile", 5)).output == "meanwhile\n"
    await sandbox.kill(loud)
    assert (await sandbox.poll(loud, 5)).exit_code == 137
    for call in (sandbox.poll(3), sandbox.kill(99), sandbox.send(0, b"")):
      with pytest.raises(SandboxError, match="no such command"):
        await call
    assert await sandbox.processes() == []

  run(body)


def test_a_kill_or_timeout_spares_what_others_started():
  async def body(sandbox):
    service = await sandbox.spawn("sleep 300 & sleep 301; wait")
    await sandbox.exec("setsid sleep 302 > /dev/null 2>&1 &", 5)
    hidden = await sandbox.spawn("(setsid sleep 303 &) ; (sleep 304 &); sleep 305")
    await asyncio.sleep(0.2)
    late = await sandbox.exec("(setsid sleep 306 &); sleep 307", 0.3)
    assert late.timed_out and late.exit_code == 137
    names = (
        "for p in /proc/[0-9]*; do read -r name < $p/comm;"
        " [ $name = sleep ] && tr '\\0' ' ' < $p/cmdline && echo; done | sort"
    )
    left = [f"sleep {n} " for n in (300, 301, 302, 303, 304, 305)]
    assert (await sandbox.exec(names, 5)).output.split("\n")[:-1] == left
    await sandbox.kill(hidden)
    left = left[:3]
    assert (await sandbox.exec(names, 5)).output.split("\n")[:-1] == left
    assert (await sandbox.poll(service)).exit_code is None
    await sandbox.quiet()
    assert (await sandbox.poll(service, 5)).exit_code == 137

  run(body)


def test_a_command_that_reads_nothing_blocks_nobody():
  async def body(sandbox):
    deaf = await sandbox.spawn("sleep 60")
    await sandbox.send(deaf, b"x" * 900_000)
    with pytest.raises(SandboxError) as error:
      for _ in range(3):
        await sandbox.send(deaf, b"x" * 500_000)
    assert error.value.code == errno.EAGAIN
    assert (await sandbox.exec("echo on", 5)).output == "on\n"

  run(body)


def test_commands_at_once_are_bounded_and_old_ones_forgotten():
  async def body(sandbox):
    for _ in range(64):
      await sandbox.spawn("exec sleep 60")
    with pytest.raises(SandboxError, match="too many commands"):
      await sandbox.spawn("sleep 60")
    await sandbox.quiet()
    assert (await sandbox.poll(1, 5)).exit_code == 137
    for _ in range(70):
      number = await sandbox.spawn(":")
      assert (await sandbox.poll(number, 5)).exit_code == 0
    with pytest.raises(SandboxError, match="no such command"):
      await sandbox.poll(1)

  run(body, bounds=Bounds(processes=128))


def test_a_terminal():
  async def body(sandbox):
    number = await sandbox.spawn(
        'tty; stty size; echo $TERM; read x; echo "<$x>"; cat; echo end', pty=True
    )
    await sandbox.send(number, b"hello\n")
    got = await sandbox.poll(number, 0.5)
    assert "/dev/pts/" in got.output and "24 80\r\nxterm" in got.output
    assert got.output.endswith("<hello>\r\n")
    await sandbox.send(number, b"", eof=True)
    got = await sandbox.poll(number, 5)
    assert got.output.endswith("end\r\n") and got.exit_code == 0
    stopped = await sandbox.spawn("sleep 60", pty=True)
    await asyncio.sleep(0.1)
    await sandbox.send(stopped, b"\x03")
    assert (await sandbox.poll(stopped, 5)).exit_code == 130
    inside = await sandbox.exec("python3 -c 'import pty; pty.openpty(); print(1)'", 9)
    assert inside.output == "1\n"
    many = "import pty\nfor i in range(99): pty.openpty()"
    flood = await sandbox.exec(f"python3 -c '{many}'", 9)
    assert "out of pty devices" in flood.output

  run(body)


def test_a_terminal_that_is_opened_again_is_read_again():
  async def body(sandbox):
    number = await sandbox.spawn(
        "t=$(tty); exec > /dev/null 2>&1 < /dev/null; sleep .3;"
        " head -c 300000 /dev/zero | tr '\\0' x > $t; exit 3", pty=True
    )  # fmt: skip
    got = await sandbox.poll(number, 20)
    assert (got.output_bytes, got.exit_code) == (300_000, 3)

  run(body)


def test_a_folder_that_its_owner_shut_can_be_opened_by_him():
  async def body(sandbox):
    await sandbox.exec("chmod 0 /workspace", 5)
    opened = await sandbox.exec("pwd; chmod 755 /workspace; ls", 5)
    assert (opened.output, opened.exit_code) == ("/workspace\na\n", 0)

  run(body, {"a": b""})


def test_any_number_is_a_time():
  async def body(sandbox):
    for seconds, ends in ((float("inf"), 0), (1e300, 0), (float("nan"), 137), (-1, 137)):
      result = await sandbox.exec("sleep .1", seconds)
      assert (result.exit_code, result.timed_out) == (ends, ends != 0), seconds

  run(body)


def test_a_cgroup_where_one_can_be_made_and_rlimits_otherwise(monkeypatch):
  async def body(sandbox):
    made = [name for _, name in cgroups.left() if f":{os.getpid()}:" in name]
    limits = sandbox.limits
    assert limits["disk"] == "tmpfs"
    probe = cgroups.make(labels.numbered(labels.label("probe", 60)), 1, 1)
    if probe is None:
      assert limits["memory"] == limits["processes"] == "rlimit"
      return made == []
    assert probe.remove()
    assert limits["processes"] == limits["memory"] and "cgroup v" in limits["memory"]
    assert len(made) >= 1
    # What no process owns is counted too.
    hog = (
        "import os\nf = os.memfd_create('x')\n"
        "for _ in range(900): os.write(f, bytes(1 << 20))"
    )
    result = await sandbox.exec(f'ulimit -f unlimited; python3 -c "{hog}"', 30)
    assert result.exit_code in (137, 153, 1), result
    assert (await sandbox.exec("echo on", 9)).output == "on\n"

  run(body, bounds=Bounds(memory=128 << 20, disk=16 << 20))
  for folder, name in cgroups.left():
    assert f":{os.getpid()}:" not in name, folder
  monkeypatch.setattr(cgroups, "make", lambda *_: None)

  async def without(sandbox):
    assert sandbox.limits["processes"] == sandbox.limits["memory"] == "rlimit"
    refused = await sandbox.exec(
        "python3 -c \"import os; os.memfd_create('x')\"", 10
    )  # fmt: skip
    assert "PermissionError" in refused.output

  run(without)


def test_version_2_of_cgroups(tmp_path, monkeypatch):
  """On a tree of plain files, as few hosts have both versions to try."""
  own = tmp_path / "own.slice" / "job.scope"
  own.mkdir(parents=True)
  for folder, handed_on in ((tmp_path, "cpu"), (own.parent, "pids memory"), (own, "")):
    (folder / "cgroup.controllers").write_text("cpu")
    (folder / "cgroup.subtree_control").write_text(handed_on)
  make_folder = os.mkdir

  def kernel_makes(path, *mode):
    make_folder(path, *mode)
    for name in ("pids.max", "memory.max", "memory.swap.max", "cgroup.procs"):
      Path(path, name).write_text("")
    Path(path, "memory.events").write_text("low 0\noom 1\noom_kill 0\n")

  monkeypatch.setattr(cgroups.os, "mkdir", kernel_makes)
  monkeypatch.setattr(cgroups, "remove", lambda folder: shutil.rmtree(folder) is None)
  monkeypatch.setattr(cgroups, "_hierarchies", lambda: {"": str(tmp_path)})
  monkeypatch.setattr(cgroups, "_own_paths", lambda: {"": "/own.slice/job.scope"})
  cgroups._place.cache_clear()
  try:

    async def body(sandbox):
      assert sandbox.limits["memory"] == "cgroup v2"
      ((folder, _),) = cgroups.left()
      assert Path(folder).parent == own.parent
      read = {path.name: path.read_text() for path in Path(folder).iterdir()}
      assert read["cgroup.procs"] == read["memory.swap.max"] == "0"
      assert int(read["pids.max"]) > 64 and int(read["memory.max"]) > 1 << 30
      killed = await sandbox.exec("kill -9 $$", 5)
      assert killed.exit_code == 137 and not killed.out_of_memory
      Path(folder, "memory.events").write_text("oom 1\noom_kill 3\n")
      assert (await sandbox.exec("kill -9 $$", 5)).out_of_memory

    run(body)
    assert list(cgroups.left()) == []
  finally:
    cgroups._place.cache_clear()


def test_a_malformed_frame_is_an_error_and_no_end():
  async def body(sandbox):
    async def say(request, data):
      future = asyncio.get_running_loop().create_future()
      sandbox._waiting[request] = future
      sandbox._writer.write(data)
      return await asyncio.wait_for(future, 10)

    header = frames.HEADER.pack
    good = frames.pack(77, Op.READ, b"x", 1)
    bad = [
        header(77, 0, 0, 0, 0), header(77, 99, 0, 0, 0), header(77, 255, 9, 0, 0),
        header(77, Op.OPENED, 0, 0, 0), header(77, Op.REPORTED, 0, 1, 4) + b"\0\0\0\0",
        header(77, Op.READ, 0, 0, 0), header(77, Op.READ, 0, 65535, 0),
        header(77, Op.READ, 0, 2, 3) + b"abc",
        header(77, Op.READ, 0, 2, 8) + b"\xff\xff\xff\xff\0\0\0\0",
        header(77, Op.READ, 0, 1, 13) + good[16:29],
        header(77, Op.READ, 0, 2, len(good) - 15) + good[16:] + b"\0",
        header(77, Op.EXEC, 0, 2, 2 << 20) + b"x" * (2 << 20),
        header(77, Op.QUIET, 0, 1, 4) + b"\0\0\0\0",
        frames.pack(77, Op.UNPACK, b"/workspace", 3, b"not a snapshot at all, really"),
        frames.pack(77, Op.UNPACK, b"/workspace", 3, b""),
        frames.pack(77, Op.UNPACK, b"/workspace", 2, b"first parts are missing"),
        frames.pack(77, Op.UNPACK, b"/work\0space", 3, pack_entries([])),
        frames.pack(77, Op.READ, b"p" * 5000, 1), frames.pack(77, Op.READ, b"", -1),
        frames.pack(77, Op.WRITE, b"", b"x", 0), frames.pack(77, Op.LIST, b"nowhere"),
        frames.pack(77, Op.WRITE, b"negative", b"x", -1),
    ]  # fmt: skip
    for data in bad:
      with pytest.raises(SandboxError):
        await say(77, data)
    # The same in pieces, and all at once.
    for i in range(len(good) - 1):
      sandbox._writer.write(good[i : i + 1])
      await asyncio.sleep(0.001)
    with pytest.raises(SandboxError, match="No such file"):
      await say(77, good[-1:])
    assert (await sandbox.exec("echo alive", 5)).output == "alive\n"
    for op in (Op.DATA, Op.ACK, Op.END, Op.CLOSED):  # of no connection
      sandbox._writer.write(frames.pack(5, op, *([b"x"] if op in (21, 22) else [])))
    sandbox._writer.write(os.urandom(64) + bytes(64))
    with contextlib.suppress(SandboxLost):
      await sandbox.exec("echo", 2)

  run(body, bounds=Bounds(grace_seconds=2.0))


def test_deadlines_hold_while_the_controller_does_not_read():
  async def body(sandbox):
    await sandbox.exec("head -c 30000000 /dev/zero > big", 10)
    sandbox._reading.cancel()
    await asyncio.sleep(0)
    sandbox._stream.transport.pause_reading()
    sandbox._writer.write(frames.pack(1000, Op.EXEC, b"touch on; sleep 60", 500))
    await asyncio.sleep(0.1)
    sandbox._writer.write(frames.pack(1001, Op.PACK, 1 << 40))
    started = time.monotonic()
    children = Path(f"/proc/{sandbox.pid}/task/{sandbox.pid}/children")
    (init,) = children.read_text().split()
    below = Path(f"/proc/{init}/task/{init}/children")

    def running():
      found = []
      for pid in below.read_text().split():
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        found += [pid] * (stat != "Z")
      return found

    assert running()
    while running():
      assert time.monotonic() - started < 5
      await asyncio.sleep(0.05)

  run(body)


def test_names_and_output_of_any_bytes():
  names = {
      "new\nline": b"1", "\udcff\udcfe": b"\x00\xff", "ü 語": b"3", "-rf": b"", " ": b"5"
  }  # fmt: skip

  async def body(sandbox):
    assert unpack(await sandbox.snapshot()) == names
    assert sorted(e["path"] for e in await sandbox.list()) == sorted(names)
    assert await sandbox.read("\udcff\udcfe") == b"\x00\xff"
    await sandbox.write("a\udc80/b\n", b"x" * 3_000_000)
    assert await sandbox.read("a\udc80/b\n", 1 << 30) == b"x" * 3_000_000
    assert await sandbox.read("a\udc80/b\n", 65_536) == b"x" * 65_536
    result = await sandbox.exec("printf '\\377\\000ok'; LANG=tr_TR sort -c /dev/null", 5)
    assert result.output.startswith("�\0ok") and result.output_bytes >= 4
    cut = await sandbox.exec("for i in $(seq 30000); do printf 語; done", 20)
    assert "�" not in cut.output and "left out" in cut.output
    for bad in ("\ud800", "\0", "x" * 5000, "a/" * 3000):
      with pytest.raises(SandboxError):
        await sandbox.read(bad)
    deep = await sandbox.exec(
        "mkdir top; cd top; for i in $(seq 300); do mkdir ddddddddddddddddddddddddddddd;"
        " cd ddd*; done; echo x > f", 20
    )
    assert deep.exit_code == 0
    entries = list(unpack_entries(await sandbox.snapshot()))
    assert any(e.kind == "dir" and e.name.startswith("top/d") for e in entries)

  run(body, names)


def test_calls_that_only_attack_the_kernel_are_refused():
  # By number, on x86_64: keyctl, bpf, perf_event_open, io_uring_setup, mount,
  # userfaultfd, syslog and unshare.
  calls = (250, 321, 298, 425, 165, 323, 103, 272)
  code = (
      "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"
      f"for n in {calls}: print(c.syscall(n, 0, 0, 0, 0, 0), ctypes.get_errno())"
  )

  async def body(sandbox):
    result = await sandbox.exec(f'python3 -c "{code}"', 9)
    assert result.output == "-1 1\n" * len(calls)
    # The same by the other tables of numbers of this machine: x32's, and by a
    # jump into the kernel that takes 32-bit numbers (getpid is 20 there).
    x32 = await sandbox.exec(
        "python3 -c \"import ctypes; c = ctypes.CDLL(None, use_errno=True);"
        " print(c.syscall(0x40000000 + 39), ctypes.get_errno())\"", 9
    )  # fmt: skip
    assert x32.output == "-1 1\n"

  if os.uname().machine == "x86_64":
    run(body)


def test_a_start_without_a_descriptor_is_lost_and_leaves_nothing():
  async def whole():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with open_sandbox() as sandbox:
      await sandbox.start()
      used = len(os.listdir("/proc/self/fd"))
      for room in range(0, 6):
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + room, hard))
        try:
          async with open_sandbox() as other:
            with contextlib.suppress(SandboxLost):
              await other.start({"a": b"1"})
        finally:
          resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
      assert len(os.listdir("/proc/self/fd")) == used
      assert (await sandbox.exec("echo on", 5)).output == "on\n"

  asyncio.run(whole())
  assert not [pid for pid, mark in labels.labelled().items() if mark.pid == os.getpid()]
  assert not [name for _, name in cgroups.left() if f":{os.getpid()}:" in name]


def test_without_a_compiler_it_is_said_what_to_install(monkeypatch, tmp_path):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  build._server.cache_clear()
  monkeypatch.setenv("PATH", "/nowhere")
  with pytest.raises(UserError, match="apt install gcc libc6-dev"):
    build.server_binary()
  monkeypatch.undo()
  build._server.cache_clear()


def test_servers_that_nobody_uses_are_removed(monkeypatch, tmp_path):
  kept = tmp_path / "clawgym_jax"
  kept.mkdir()
  files = {"server-old": 31, "server-new": 29, ".server-old.part": 31, "passwd": 99}
  for name, days in files.items():
    (kept / name).write_text("")
    os.utime(kept / name, (time.time() - days * 86400,) * 2)
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  build._server.cache_clear()
  made = build.server_binary()
  assert {path.name for path in kept.iterdir()} == {"server-new", "passwd", made.name}
  os.utime(made, (0, 0))
  build._server.cache_clear()  # as on the next day
  assert build.server_binary() == made and made.stat().st_mtime > time.time() - 60
  monkeypatch.undo()
  build._server.cache_clear()


def test_what_a_shell_would_only_make_way_for_needs_none():
  async def body(sandbox):
    env = {"CLAWGYM_NOW", "CLAWGYM_REPORT", "HOME", "LANG", "PATH", "TZ"}
    alone = await sandbox.exec("exec  env ", 5)
    assert {line.partition("=")[0] for line in alone.output.splitlines()} == env
    by_shell = await sandbox.exec("exec env $nothing", 5)
    assert "SHLVL=" in by_shell.output
    assert (await sandbox.exec("exec sh -c exit", 5)).exit_code == 0
    missing = await sandbox.exec("exec no-such-program", 5)
    assert missing.exit_code == 127 and "no-such-program: not found" in missing.output
    for command, code in (("exec", 0), ("exec -a x true", 0), ("exec cd", 127)):
      assert (await sandbox.exec(command, 5)).exit_code == code, command
    assert (await sandbox.exec("exec pwd", 5)).output == "/workspace\n"

  run(body)
