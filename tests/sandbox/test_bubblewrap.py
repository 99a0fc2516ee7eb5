"""What a sandbox lets through and what it contains, on the real kernel."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from clawgym_jax.contracts.errors import UserError
from sandbox.backends import (
    Bounds,
    SandboxLost,
    bubblewrap,
    check_backend,
    open_sandbox,
)
from sandbox.backends.base import Entry, pack, pack_entries, unpack
from sandbox.backends.build import server_binary
from sandbox.backends.labels import Label, labelled
from tests.sandbox.started import run


def test_nothing_of_the_host_is_inside(tmp_path, monkeypatch):
  monkeypatch.setenv("CANARY_TOKEN", "canary-6d1f")
  (tmp_path / "secret.txt").write_text("canary-6d1f")

  async def body(sandbox):
    seen = await sandbox.exec(
        f"env; cat {tmp_path}/secret.txt /root/* /home/* /etc/shadow;"
        " cat /proc/*/environ /proc/*/cmdline; ls /; mount; hostname", 10
    )
    assert "canary" not in seen.output
    assert seen.output.splitlines()[-1] == "sandbox"
    env = await sandbox.exec("env -u _ -u SHLVL -u PWD | sort", 5)
    assert env.output.splitlines() == [
        "CLAWGYM_NOW=2026-01-05T09:00:00Z", "CLAWGYM_REPORT=/run/sandbox/report",
        "HOME=/tmp/home", "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin", "TZ=UTC",
    ]  # fmt: skip
    network = await sandbox.exec(
        "python3 -c \"import socket; socket.create_connection(('1.1.1.1', 53), 2)\"", 10
    )
    assert "unreachable" in network.output
    root = await sandbox.exec("touch /x /etc/x /dev/x /usr/x", 5)
    assert root.output.count("Read-only file system") == 4
    caps = await sandbox.exec("grep CapEff /proc/self/status; unshare -Ur id", 5)
    assert "CapEff:\t0000000000000000" in caps.output
    assert "unshare failed" in caps.output

  run(body, now="2026-01-05T09:00:00Z")


def test_links_that_leave_are_dropped_on_the_way_in():
  links = [
      Entry(name, target, "link") for name, target in (
          ("abs", b"/etc/passwd"), ("up", b"../etc/passwd"), ("dot", b"."),
          ("chain", b"dot/../../etc"), ("fine", b"data/in"), ("data/back", b"../fine"),
          ("later", b"data/not/yet"), ("loop", b"loop"),
      )
  ]  # fmt: skip
  files = [
      Entry(name, b"x", mode=0) for name in ("../out", "/tmp/out", "data/in", "abs/x")
  ]

  async def body(sandbox):
    await sandbox.restore(pack_entries(links + files))
    entries = {e["path"]: e["type"] for e in await sandbox.list()}
    assert entries == {
        "abs": "dir", "abs/x": "file", "data": "dir", "data/in": "file",
        "data/back": "link", "dot": "link", "fine": "link",
        "later": "link",
    }  # fmt: skip
    assert (await sandbox.exec("cat data/back; ls /tmp", 5)).output == "xhome\n"

  run(body)


def test_32_at_once_leave_nothing_behind():
  async def one():
    async with open_sandbox() as sandbox:
      await sandbox.start({"n": b"1"})
      await sandbox.exec("sleep 1000 & setsid sleep 1000 & echo $!", 10)

  async def whole():
    await asyncio.gather(*(one() for _ in range(32)))

  before = set(os.listdir("/tmp"))
  asyncio.run(whole())
  mine = [pid for pid, mark in labelled().items() if mark.pid == os.getpid()]
  assert mine == []
  new = {name: Label.parse(name) for name in set(os.listdir("/tmp")) - before}
  other = [name for name, mark in new.items() if mark and mark.pid != os.getpid()]
  assert not [name for name in new.keys() - other if "sandbox" in name]


def test_a_start_that_fails_is_lost_within_its_bound(monkeypatch):
  monkeypatch.setattr(bubblewrap, "_SERVER", ("/bin/sh", "-c", "sleep 60"))

  async def whole():
    async with open_sandbox(bounds=Bounds(boot_seconds=0.5)) as sandbox:
      with pytest.raises(SandboxLost, match="did not start within"):
        await sandbox.start()

  asyncio.run(whole())
  monkeypatch.setattr(bubblewrap, "_SERVER", ("/bin/sh", "-c", "echo no such luck >&2"))

  async def says_why():
    async with open_sandbox() as sandbox:
      with pytest.raises(SandboxLost, match="no such luck"):
        await sandbox.start()

  asyncio.run(says_why())


def test_check_says_what_to_do(monkeypatch):
  bubblewrap.check.cache_clear()
  monkeypatch.setenv("PATH", "/nowhere")
  with pytest.raises(UserError, match="apt install bubblewrap"):
    bubblewrap.check()
  monkeypatch.undo()
  bubblewrap.check.cache_clear()
  monkeypatch.setattr(bubblewrap, "_mounts", lambda: ["--no-such-option"])
  with pytest.raises(UserError, match="user.max_user_namespaces"):
    bubblewrap.check()
  bubblewrap.check.cache_clear()


def test_pack_is_the_same_for_the_same_files():
  files = {"b": b"2", "a/c": b"1"}
  assert pack(files) == pack(dict(reversed(files.items())))
  assert unpack(pack(files)) == files


def test_a_stopped_sandbox_kills_and_answers():
  async def body(sandbox):
    running = asyncio.create_task(sandbox.exec("sleep 60", 60))
    await asyncio.sleep(0.2)
    await sandbox.stop()
    with pytest.raises(SandboxLost, match="stopped"):
      await running
    await sandbox.stop()
    with pytest.raises(ProcessLookupError):
      os.kill(sandbox.pid, signal.SIG_DFL)

  run(body)


def test_a_start_can_be_cancelled_at_any_point():
  async def one(delay):
    async with open_sandbox() as sandbox:
      starting = asyncio.create_task(sandbox.start({"a": b"1"}))
      await asyncio.sleep(delay)
      starting.cancel()
      done, _ = await asyncio.wait([starting], timeout=20)
      assert done

  async def whole():
    for step in range(30):
      await one(step * 0.001)

  asyncio.run(whole())
  assert not [pid for pid, mark in labelled().items() if mark.pid == os.getpid()]


def test_folders_that_sandboxes_show_are_refused(tmp_path):
  (tmp_path / "link").symlink_to("/usr/share")
  check_backend("bubblewrap", tmp_path)
  for folder in (Path("/usr/src/app/tasks"), Path("/lib/x"), tmp_path / "link" / "x"):
    with pytest.raises(UserError, match="can read, checks and solutions with it"):
      check_backend("bubblewrap", tmp_path, folder)


def test_stops_beside_a_start_and_each_other_leave_nothing():
  async def one(seconds):
    sandbox = open_sandbox()
    starting = asyncio.create_task(sandbox.start({"a": bytes(1 << 20)}))
    await asyncio.sleep(seconds)
    given_up = asyncio.create_task(sandbox.stop())
    await asyncio.sleep(seconds / 4)
    given_up.cancel()
    assert await asyncio.gather(sandbox.stop(), sandbox.stop()) == [None, None]
    await asyncio.gather(starting, given_up, return_exceptions=True)
    assert not os.path.exists(f"/proc/{sandbox.pid}")
    stopped = open_sandbox()
    await stopped.stop()
    with pytest.raises(SandboxLost, match="stopped"):
      await stopped.start()

  async def whole():
    for step in range(20):
      await one(step / 1000)

  asyncio.run(whole())


ANOTHER = 54_321
AS_ANOTHER = f"""
import asyncio, os, sys
from sandbox.backends import bubblewrap, build, open_sandbox
build.server_binary()
os.setgroups([])
os.setresgid(*[{ANOTHER}] * 3)
os.setresuid(*[{ANOTHER}] * 3)
async def main():
  async with open_sandbox() as box:
    await box.start({{"a": b"1"}})
    said = await box.exec("cat a; echo :$(id -u)")
    async with await box.fork() as other:
      print(said.output, (await other.exec("cat a")).output, *box.limits.values())
asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="all tests here are unprivileged")
def test_no_privilege_is_needed(monkeypatch):
  with tempfile.TemporaryDirectory(dir="/tmp") as folder:
    os.chmod(folder, 0o755)
    kept = Path(folder, "clawgym_jax")
    kept.mkdir(mode=0o755)
    shutil.copy2(server_binary(), kept)
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    said = subprocess.check_output([sys.executable, "-c", AS_ANOTHER], text=True)
  assert said.startswith("1:1000\n") and said.endswith("1 rlimit rlimit tmpfs\n")
