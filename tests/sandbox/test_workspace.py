"""Workspaces on their way in and out: as a copy, an overlay, a snapshot, a fork."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from clawgym_jax.contracts.workspace import settle
from sandbox.backends import Bounds, SandboxError, open_sandbox
from sandbox.backends.base import Entry, pack_entries, unpack, unpack_entries
from tests.sandbox import started
from tests.sandbox.test_contract import backend, run  # noqa: F401

LOOK = "find . /tmp/keep -exec stat -c '%n %a %Y' {} + | sort"
SAY = """python3 -c "
import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ['CLAWGYM_REPORT'])
s.sendall(b'{\\"service\\": \\"outbox\\", \\"data\\": {}}\\n')
print(s.makefile().readline(), end='')
" """


def test_large_files_pass_unchanged(run):
  data = os.urandom(20 << 20)

  async def body(sandbox):
    await sandbox.write("large", data)
    sums = await sandbox.exec("sha256sum large; wc -c < large", 20)
    assert sums.output.endswith(f"\n{len(data)}\n")
    assert await sandbox.read("large", len(data)) == data
    assert unpack(await sandbox.snapshot()) == {"large": data}

  run(body)


def test_a_fork_is_apart_from_its_origin(run):
  async def body(sandbox):
    await sandbox.write("one", b"1")
    await sandbox.write("/extra/state", b"3")
    async with await sandbox.fork() as other:
      assert await other.read("/extra/state") == b"3"
      await other.write("two", b"2")
      assert unpack(await other.snapshot()) == {"in": b"0", "one": b"1", "two": b"2"}
      assert await other.diff() == {"one": "added", "two": "added"}
    assert set(unpack(await sandbox.snapshot())) == {"in", "one"}

  run(body, {"in": b"0"}, folders=("/extra",))


def test_a_fork_goes_on_from_the_state_of_its_origin(run):
  async def body(sandbox):
    assert (await sandbox.exec(SAY, 20)).output == "ok\n"
    await sandbox.exec(
        "mkdir -p d/empty /tmp/keep; echo 1 > /tmp/keep/a; touch -d 2024-02-02 d/x;"
        " ln -s x d/l; touch -h -d 2023-03-03 d/l; echo s > d/shut; chmod 400 d/shut;"
        " ln -s /usr/bin/env out; ln -s ../tmp/keep up; ln -s nowhere none;"
        " chmod 4751 d/x; mkdir e; chmod 500 d; chmod 0 e; touch -d 2022-01-01 d .", 5
    )
    seen = await sandbox.exec(LOOK, 10)
    assert "./d 500 " in seen.output and "./d/x 4751 1706832000\n" in seen.output
    async with await sandbox.fork() as other:
      assert (await other.exec(LOOK, 10)).output == seen.output
      assert (await other.exec("./out cat up/a; echo > d/new", 10)).output == (
          "1\n/bin/bash: line 1: d/new: Permission denied\n"
      )
      assert (await other.exec(SAY, 20)).output == "ok\n"
      assert other.reports[:1] == sandbox.reports and len(other.reports) == 2
      assert other.reports[1]["seconds"] > other.reports[0]["seconds"]
    assert (await sandbox.exec(LOOK, 10)).output == seen.output
    assert len(sandbox.reports) == 1

  run(body)


def test_a_snapshot_holds_what_the_agent_shut_and_no_host_file(run):
  async def body(sandbox):
    await sandbox.exec(
        "echo a > a; chmod 0 a; mkdir d; echo b > d/b; chmod 0 d; ln -s /etc/passwd l;"
        " ln a h; mkfifo p; touch $'\\xff'", 5
    )
    snapshot = await sandbox.snapshot()
    assert unpack(snapshot) == {"a": b"a\n", "d/b": b"b\n", "h": b"a\n", "\udcff": b""}
    assert (await sandbox.exec("cat a d/b; chmod 644 a h; chmod 755 d", 5)).output == (
        "cat: a: Permission denied\ncat: d/b: Permission denied\n"
    )  # still shut
    await sandbox.exec("rm -rf *", 5)
    await sandbox.restore(snapshot)  # as a verifier does, which reads all
    assert (await sandbox.exec("cat a d/b h; ls | wc -l", 5)).output == "a\nb\na\n4\n"

  run(body)


@pytest.mark.parametrize("owned", ["by root", "by another"])
def test_a_large_workspace_is_an_overlay(tmp_path, owned):
  (tmp_path / "sub").mkdir()
  (tmp_path / "big").write_bytes(b"b" * (2 << 20))
  (tmp_path / "sub" / "small").write_text("small\n")
  (tmp_path / "run.sh").write_text("#!/bin/sh\necho ran\n")
  (tmp_path / "run.sh").chmod(0o755)
  settle(tmp_path)
  if owned == "by another":
    os.chown(tmp_path / "big", 12345, 12345)  # then it must be copied

  async def body(sandbox):
    mounts = (await sandbox.exec("grep /workspace /proc/mounts", 5)).output
    assert mounts.startswith("overlay" if owned == "by root" else "tmpfs")
    hidden = await sandbox.exec("ls -A /run/lower /run/upper | wc -l", 5)
    assert hidden.output == "3\n"  # the names and a line between
    ran = await sandbox.exec(
        "./run.sh && cat sub/small && echo more >> big && rm sub/small && mkdir d &&"
        " echo new > d/new && rm -r d && mkdir d && echo x > d/x; echo $?", 10
    )
    assert ran.output == "ran\nsmall\n0\n"
    assert await sandbox.diff() == {
        "big": "changed", "d/x": "added", "sub/small": "removed"
    }  # fmt: skip
    full = await sandbox.exec("head -c 20000000 /dev/zero > f || echo full", 20)
    assert "full" in full.output
    await sandbox.exec("rm f", 5)
    async with await sandbox.fork() as other:
      assert await other.diff() == await sandbox.diff()

  async def whole():
    async with open_sandbox(bounds=Bounds(disk=16 << 20)) as sandbox:
      await sandbox.start(tmp_path)
      await body(sandbox)

  asyncio.run(whole())
  assert (tmp_path / "big").stat().st_size == 2 << 20
  assert (tmp_path / "sub" / "small").exists()


def test_an_overlay_looks_as_a_copy_does(tmp_path):
  look = "find . ! -type l -exec stat -c '%n %a %Y %F' {} + | sort; umask"

  def workspace(name):
    folder = tmp_path / name
    (folder / "a" / "empty").mkdir(parents=True)
    (folder / "a" / "large").write_bytes(b"l" * (2 << 20))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "plain.txt").write_text("p")
    (folder / "plain.txt").chmod(0o777)
    (folder / "a").chmod(0o700)
    return folder

  async def seen(sandbox):
    mounted = await sandbox.exec("grep -c '^overlay /workspace' /proc/mounts", 5)
    return mounted.output, (await sandbox.exec(look, 5)).output

  settled, other = workspace("settled"), workspace("other")
  settle(settled)
  overlaid, copied = started.run(seen, settled), started.run(seen, other)
  assert (overlaid[0], copied[0]) == ("1\n", "0\n")
  assert overlaid[1] == copied[1]
  assert "./a/empty 755 1577836800 directory\n" in copied[1]
  assert "./run.sh 755 1577836800 regular file\n" in copied[1]
  (settled / "plain.txt").write_text("#!")  # its mode now says other than its start
  settled_time = (settled / "run.sh").stat().st_mtime
  os.utime(settled / "plain.txt", (settled_time, settled_time))
  assert started.run(seen, settled)[0] == "0\n"


def test_restore_takes_what_stands_in_the_way():
  async def body(sandbox):
    await sandbox.exec("mkfifo pipe; ln -s /etc/passwd link; ln -s nowhere/x up", 5)
    snapshot = pack_entries([
        Entry("pipe", b"1"), Entry("link", b"2"), Entry("up", b"3"),
        Entry("d", kind="dir"), Entry("run", b"#!/bin/sh\necho hi", mode=0o755),
        Entry("big", os.urandom(5_000_000)),
    ])  # fmt: skip
    await asyncio.wait_for(sandbox.restore(snapshot), 10)
    result = await sandbox.exec("cat pipe link up; ./run; ls -d d", 5)
    assert result.output == "123hi\nd\n"
    files = {e.name: e for e in unpack_entries(await sandbox.snapshot())}
    assert files["run"].mode == 0o755 and len(files["big"].data) == 5_000_000
    both = [pack_entries([Entry(n, n.encode() * 3_000_000)]) for n in "xy"]
    await asyncio.gather(*map(sandbox.restore, both))
    for name in "xy":
      assert await sandbox.read(name, 9) == name.encode() * 9
    with pytest.raises(SandboxError):
      await sandbox.restore(snapshot[:-30])
    with pytest.raises(SandboxError) as error:
      await sandbox.restore(pack_entries([Entry("more", bytes(90_000_000))]))
    assert error.value.code in (errno.ENOSPC, errno.EFBIG)

  started.run(body)
