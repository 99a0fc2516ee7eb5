"""Writes and reads through the tools that try to leave the sandbox: links, `..`,
devices, process 1's own files, snapshots that name what they must not."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest

from sandbox import tools
from sandbox.backends import Bounds, SandboxError, check_backend, open_sandbox
from sandbox.backends.base import Entry, pack_entries, unpack
from tests.sandbox import hostile

OFFERED = tools.offered(("process", "apply_patch", "edit", "read", "write", "exec"))


@pytest.fixture(params=["bubblewrap", pytest.param("docker", marks=pytest.mark.slow)])
def attack(request, tmp_path):
  """Runs `body(sandbox, canaries)`; then the sandbox must serve, the host be whole."""
  if request.param == "docker":
    request.getfixturevalue("docker_host")
  check_backend(request.param)
  before = hostile.left()

  def attack(body, **settings):
    async def whole():
      canaries = hostile.Canaries(tmp_path)
      with canaries.out():
        async with open_sandbox(request.param, **settings) as sandbox:
          await sandbox.start({"in.txt": b"in\n"})
          said = await body(sandbox, canaries)
          served = await sandbox.exec("cat /workspace/in.txt", 10)
          assert served.output == "in\n"
        canaries.check()
        assert canaries.word not in repr(said)
      await hostile.nothing_left(before)
      return said

    return asyncio.run(whole())

  return attack


async def use(sandbox, name, **args):
  return await tools.execute(sandbox, name, args, offered=OFFERED, seconds=5)


# Where a path leads outside: by `..`, by a link, by the root of another process.
WAYS = {
    "..": "../../../../..{0}",
    "absolute": "{0}",
    "a link": "link",
    "a link to a folder": "up/{1}",
    "a loop of links": "loop",
    "another's root": "/proc/1/root{0}",
    "its own root": "/proc/self/root{0}",
    "its own folder": "/proc/self/cwd/../..{0}",
    "a descriptor": "/proc/self/fd/0",
}


@pytest.mark.parametrize("way", WAYS)
def test_files_beyond_are_neither_read_nor_written(attack, way):
  async def body(sandbox, canaries):
    secret = str(canaries.secret)
    path = WAYS[way].format(secret, canaries.secret.name)
    await sandbox.exec(
        f"ln -s {secret} link; ln -s {canaries.folder} up; ln -s loop loop", 5
    )
    patch = (
        f"*** Begin Patch\n*** Update File: {path}\n@@\n-{canaries.word}\n+x\n"
        "*** End Patch\n"
    )
    said = [
        await use(sandbox, "read", path=path),
        await use(sandbox, "edit", path=path, oldText="canary", newText="x"),
        await use(sandbox, "apply_patch", input=patch),
        await use(sandbox, "write", path=path, content="x"),
        await use(sandbox, "exec", command=f"cat {path} < /dev/null"),
    ]
    return [text.replace(canaries.word, "") if i == 2 else text
            for i, text in enumerate(said)]  # what it was asked, said again

  attack(body)


@pytest.mark.parametrize(
    "path",
    ["/proc/self/mem", "/proc/self/exe", "/proc/1/exe", "/proc/self/oom_score_adj",
     "/proc/self/fd/100", "/proc/self/fd/101", "/proc/sysrq-trigger", "/etc/passwd",
     "/usr/bin/env", "/bin/sh", "/proc/sys/kernel/core_pattern", "/run/sandbox/report",
     "/dev/null", "/dev/pts/ptmx", "/proc/self/comm", "/proc/self/clear_refs"],
)  # fmt: skip
def test_the_server_writes_no_file_of_its_own(attack, path):
  """Tools' files are opened by process 1, which may do with itself what others may
  not: what of this is a regular file is neither the memory nor a stream."""

  async def body(sandbox, canaries):
    for size in (3, 600_000):
      wrote = await use(sandbox, "write", path=path, content="x" * size)
      if not path.endswith(("comm", "clear_refs")):  # of no consequence
        assert "write failed" in wrote, wrote
    return await use(sandbox, "read", path=path)

  attack(body)


@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/self/maps", "/proc/1/environ", "/proc/keys"]
)
def test_what_the_server_may_read_of_itself_tells_nothing(attack, path):
  attack(lambda sandbox, canaries: use(sandbox, "read", path=path))


@pytest.mark.parametrize("path", ["/proc/kmsg", "/proc/kcore", "/dev/zero", "/dev/tty",
                                  "pipe", "/proc/self/mem", "/dev/stdin", "door"])
def test_a_read_waits_for_nothing(attack, path):
  async def body(sandbox, canaries):
    await sandbox.exec(
        "mkfifo pipe; python3 -c \"import socket; socket.socket(1).bind('door')\"", 5
    )
    read = await asyncio.wait_for(use(sandbox, "read", path=path), 5)
    assert "read failed" in read
    return read

  attack(body)


def test_hard_links_take_nothing_along(attack):
  async def body(sandbox, canaries):
    made = await sandbox.exec(
        f"for f in /etc/passwd /usr/bin/su /proc/1/environ {canaries.secret} /dev/null;"
        " do ln $f stolen && echo MADE; ln -L /proc/self/fd/0 fd && echo MADE; done", 5
    )
    assert "MADE" not in made.output
    await sandbox.exec("ln in.txt again; ln -s /etc/passwd link", 5)
    await sandbox.write("again", b"in\n")
    assert unpack(await sandbox.snapshot()) == {"in.txt": b"in\n", "again": b"in\n"}
    return made.output

  attack(body)


EVIL = {
    "..": [Entry("../../tmp/evil", b"x"), Entry("a/../../tmp/evil", b"x")],
    "absolute": [Entry("/tmp/evil", b"x")],
    "a link": [Entry("d", b"/tmp", "link"), Entry("d/evil", b"x")],
    "a link behind": [Entry("d/evil", b"x"), Entry("d", b"/tmp", "link")],
    "links of links": [
        Entry("a", b".", "link"), Entry("a/b", b"..", "link"),
        Entry("a/b/c", b"tmp", "link"), Entry("c/evil", b"x"),
    ],
    "the root itself": [Entry("", b"/tmp", "link"), Entry(".", b"/tmp", "link")],
    "a zero": [Entry("a\0/../../tmp/evil", b"x")],
    "setuid": [Entry("evil", b"#!/bin/sh\nid -u\n", mode=0o6755)],
}  # fmt: skip


@pytest.mark.parametrize("name", EVIL)
def test_a_snapshot_leaves_its_root_by_no_name(attack, name):
  async def body(sandbox, canaries):
    with contextlib.suppress(SandboxError):
      await sandbox.restore(pack_entries(EVIL[name]))
    found = await sandbox.exec(
        "ls /tmp/evil; find /workspace -type l -printf '%p %l\\n'; find . -perm /6000;"
        " ls -ld /workspace", 5
    )
    lines = found.output.splitlines()
    assert "cannot access" in lines[0]
    assert not [line for line in lines[1:-1] if "/tmp" in line or ".." in line], lines
    assert len(lines) < 5 and lines[-1].startswith("d"), lines
    return lines

  attack(body)


def test_a_folder_that_turns_into_a_link_leads_nowhere(attack):
  """The host's files aren't there to be hit, however the race ends."""

  async def body(sandbox, canaries):
    racing = await sandbox.spawn(
        f"while :; do mkdir -p d; rm -rf d; ln -sfn {canaries.folder} d; rm -f d; done"
    )
    for _ in range(100):
      with contextlib.suppress(SandboxError):
        await sandbox.write(f"d/{canaries.secret.name}", b"x")
      with contextlib.suppress(SandboxError):
        assert await sandbox.read(f"d/{canaries.secret.name}") in (b"x", b"")
      with contextlib.suppress(SandboxError):
        await sandbox.restore(pack_entries([Entry("d/secret.txt", b"x")]))
      assert canaries.word.encode() not in await sandbox.snapshot()
    await sandbox.kill(racing)

  attack(body)


def test_names_of_any_bytes(attack):
  async def body(sandbox, canaries):
    await hostile.run(
        sandbox, "for name in NAMES: open(b'/workspace/' + name, 'w').write('1')",
        NAMES=[b"a\nb", b"\xff\xfe", b"-rf", b" ", b"\x1b[2J", b"x" * 255, b"\r",
               "\u202e".encode(), b"\\", b"'\""],
    )  # fmt: skip
    files = unpack(await sandbox.snapshot())
    assert len(files) == 11 and set(files) >= {"a\nb", os.fsdecode(b"\xff\xfe"), "-rf"}
    assert {e["path"] for e in await sandbox.list()} == set(files)
    for path in files:
      assert await sandbox.read(path) == files[path]
    async with await sandbox.fork() as other:
      assert unpack(await other.snapshot()) == files

  attack(body)


def test_folders_however_deep(attack):
  async def body(sandbox, canaries):
    deep = await sandbox.exec(
        'python3 -c "\nimport os\nfor n in range(6000):\n'
        "  try: os.mkdir('d'); os.chdir('d')\n  except OSError as e: print(e); break\n"
        '"', 20
    )  # fmt: skip
    await sandbox.list()
    snapshot = await sandbox.snapshot()
    assert unpack(snapshot) == {"in.txt": b"in\n"}
    await sandbox.exec("rm -rf d", 20)
    await sandbox.restore(snapshot)
    return deep.output

  attack(body)


@pytest.mark.parametrize("size", ["1T", "63M"])
def test_files_that_are_all_holes(attack, size):
  async def body(sandbox, canaries):
    made = await sandbox.exec(f"for i in 1 2 3; do truncate -s {size} h$i; done", 10)
    if size == "1T":
      assert made.output.count("File too large") == 3 or made.exit_code != 0
    else:
      with pytest.raises(SandboxError, match="larger than its bound"):
        await sandbox.snapshot()
    await sandbox.exec("rm -f h*", 5)
    assert unpack(await sandbox.snapshot()) == {"in.txt": b"in\n"}

  attack(body)
