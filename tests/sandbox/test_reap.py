"""kill -9 of a controller at a random moment: `reap` leaves nothing of it, and
another run on the same host is untouched."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandbox.backends import cgroups, labels
from sandbox.backends.labels import Label, labelled
from sandbox.reap import reap

ALIVE = 64
MARK = "86399.25"  # seconds that only these sandboxes sleep

CONTROLLER = f"""
import asyncio, random, socket, sys
from sandbox.backends import labels, open_sandbox
count = int(sys.argv[1])
async def one(limit):
  async with limit:
    box = open_sandbox(run_id=sys.argv[2])
    await box.start({{"a": b"1"}})
    await box.exec("setsid sleep {MARK} > /dev/null 2>&1 &")
    return box
async def main():
  folder = labels.run_directory(sys.argv[2])
  with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(str(folder / "gateway"))
    limit = asyncio.Semaphore(8)
    boxes = await asyncio.gather(*(one(limit) for _ in range(count)))
    print("alive", flush=True)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await loop.connect_read_pipe(lambda: protocol, sys.stdin)
    async def churn(i):
      while count > 8:
        await boxes[i].stop()
        boxes[i] = await one(limit)
    work = [asyncio.create_task(churn(i)) for i in range(count)]
    while await reader.readline():
      results = [await box.exec("cat a") for box in boxes]
      print(*(result.output for result in results), flush=True)
    for task in work: task.cancel()
    for box in boxes: await box.stop()
  (folder / "gateway").unlink(); folder.rmdir()
asyncio.run(main())
"""


def control(count, run_id):
  process = subprocess.Popen(
      [sys.executable, "-c", CONTROLLER, str(count), run_id],
      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
      env={**os.environ, "PYTHONPATH": os.getcwd()},
  )  # fmt: skip
  assert process.stdout.readline() == "alive\n"
  return process


def left_of(pid):
  """What there is of the controller `pid`: processes, cgroups and directories."""
  found = [f"process {p}" for p, mark in labelled().items() if mark.pid == pid]
  for folder, name in cgroups.left():
    if (Label.parse(name) or Label("", "", 0, 0, 0)).pid == pid:
      found.append(folder)
  for name in os.listdir(tempfile.gettempdir()):
    if (Label.parse(name) or Label("", "", 0, 0, 0)).pid == pid:
      found.append(name)
  return found


def sleepers():
  """Processes of any sandbox of this test, labelled or not; the dying do not count."""
  found = []
  for name in filter(str.isdigit, os.listdir("/proc")):
    try:
      with open(f"/proc/{name}/cmdline", "rb") as file:
        line = file.read()
    except OSError:
      continue
    if line == f"sleep\0{MARK}\0".encode():
      found.append(int(name))
  return found


def mounts():
  with open("/proc/self/mounts") as file:
    return [line for line in file if labels.PREFIX in line or "/workspace" in line]


def kill_and_reap(rounds):
  other = control(2, "other")
  try:
    end = time.monotonic() + 10
    while len(undisturbed := sorted(sleepers())) < 2:
      assert time.monotonic() < end
      time.sleep(0.01)
    before = mounts()
    theirs = sorted(left_of(other.pid))
    for _ in range(rounds):
      dead = control(ALIVE, "dead")
      time.sleep(random.random() * 0.3)
      dead.kill()
      dead.wait()
      reap()
      end = time.monotonic() + 10  # for the kernel, to take down what was killed
      while left_of(dead.pid) or sorted(sleepers()) != undisturbed:
        assert time.monotonic() < end, left_of(dead.pid) or sleepers()
        time.sleep(0.01)
        reap()
      assert mounts() == before
      assert sorted(left_of(other.pid)) == theirs
    other.stdin.write("work\n")
    other.stdin.flush()
    assert other.stdout.readline() == "1 1\n"
    other.stdin.close()
    assert other.wait(30) == 0
    assert left_of(other.pid) == [] and sleepers() == []
  finally:
    other.kill()
    other.wait()
    reap()


def test_five_kills():
  kill_and_reap(5)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_200_kills():
  kill_and_reap(200)


@pytest.fixture
def cache(tmp_path_factory, monkeypatch):
  """Of a user whose runs had no directories yet."""
  folder = tmp_path_factory.mktemp("cache")
  monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
  return folder


def test_a_directory_is_found_under_another_tmpdir(tmp_path, monkeypatch, cache):
  made = f"""
import tempfile
from sandbox.backends import labels
for place in {[str(tmp_path / n) for n in ("a", "b", "b", "gone")]}:
  tempfile.tempdir = place
  print(labels.run_directory("run"))
"""
  for name in ("a", "b", "gone", "mine"):
    (tmp_path / name).mkdir()
  said = subprocess.check_output(
      [sys.executable, "-c", made], text=True,
      env={**os.environ, "PYTHONPATH": os.getcwd()},
  )  # fmt: skip
  assert len(said.split()) == 4
  shutil.rmtree(tmp_path / "gone")
  (tmp_path / "a" / "other").mkdir()
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "mine"))
  notes = cache / "clawgym_jax" / "places"
  assert len(list(notes.iterdir())) == 3
  assert reap()["directories"] == 3
  assert list((tmp_path / "a").iterdir()) == [tmp_path / "a" / "other"]
  assert not list((tmp_path / "b").iterdir()) and len(list(notes.iterdir())) == 2


def test_damaged_notes_of_places_end_nothing(tmp_path, monkeypatch, cache):
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  labels.run_directory("run").rmdir()
  notes = cache / "clawgym_jax" / "places"
  (note,) = notes.iterdir()
  note.write_bytes(b"")  # as a machine that lost its power may leave it
  labels.run_directory("run").rmdir()
  assert note.read_bytes() == os.fsencode(tmp_path)
  for damaged in (b"", b"/a\0b", b"/" + b"a" * 5000, b"etc"):
    (notes / "damaged").write_bytes(damaged)
    reap()
    assert list(notes.iterdir()) == [note]
  (notes / "folder").mkdir()
  reap()
  shutil.rmtree(notes)
  notes.write_bytes(b"")
  labels.run_directory("run").rmdir()  # not noted
  reap()


def test_two_reapers_at_once(tmp_path, monkeypatch, cache):
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  gone = labels.run_directory("run").name.split(":")
  for number in range(200):
    (tmp_path / ":".join([*gone[:3], "1", "1", gone[5], str(number)])).mkdir()
  with ThreadPoolExecutor(3) as pool:
    counts = [future.result() for future in [pool.submit(reap) for _ in range(3)]]
  assert sum(count["directories"] for count in counts) >= 200
  assert len(list(tmp_path.iterdir())) == 1


def test_a_directory_is_removed_only_with_its_controller(tmp_path, monkeypatch, cache):
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  mine = labels.run_directory("run")
  gone = subprocess.Popen([sys.executable, "-c", ""])
  gone.wait()
  dead = tmp_path / mine.name.replace(f":{os.getpid()}:", f":{gone.pid}:")
  dead.mkdir()
  (dead / "gateway").write_text("")
  link = tmp_path / (dead.name + "1")
  link.symlink_to("/etc")
  other = tmp_path / dead.name.replace(dead.name.split(":")[2], "42")
  other.mkdir()
  over = tmp_path / ":".join([*other.name.split(":")[:5], "1000", "1"])
  over.mkdir()
  assert reap()["directories"] == 2
  assert sorted(tmp_path.iterdir()) == sorted([mine, link, other])
