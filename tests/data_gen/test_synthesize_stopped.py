"""The procedural generator killed or out of space: whole tasks only, and it goes on."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawgym_jax.contracts.task import load_task
from data_gen.convert.contents import check
from data_gen.synthesize import synthesize

COUNT, SEED = 20, 7


def _command(out: Path) -> list[str]:
  return [
      sys.executable, "-m", "data_gen.synthesize", f"--out={out}", "--workers=2",
      f"--num_tasks={COUNT}", f"--seed={SEED}", "--json",
  ]  # fmt: skip


def _contents(folder: Path) -> dict[str, bytes]:
  return {
      str(path.relative_to(folder)): path.read_bytes()
      for path in sorted(folder.rglob("*"))
      if path.is_file() and path.name != ".lock"
  }


def _names(out: Path) -> list[str]:
  """What stands there under a task's name."""
  return sorted(p.name for p in out.glob("[!.]*") if p.is_dir())


def _all_whole(out: Path) -> int:
  """How many tasks there are, each of which is what its content hash says."""
  for name in _names(out):
    check(out / name)
    assert load_task(out / name).reference()
  return len(_names(out))


def _children(process: int) -> list[int]:
  tasks = Path(f"/proc/{process}/task/{process}/children").read_text()
  return [int(child) for child in tasks.split()]


def _alive(process: int) -> bool:
  try:
    state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
  except (FileNotFoundError, ProcessLookupError):
    return False
  return state != "Z"


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> dict[str, bytes]:
  out = tmp_path_factory.mktemp("unbroken") / "tasks"
  synthesize(out, COUNT, SEED, "train", workers=1)
  return _contents(out)


@pytest.fixture
def started(tmp_path) -> Iterator[subprocess.Popen]:
  """The generator, at work on tmp_path / "tasks"."""
  process = subprocess.Popen(
      _command(tmp_path / "tasks"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
      text=True,
  )  # fmt: skip
  yield process
  process.kill()
  process.communicate()


def _wait_for(process: subprocess.Popen, out: Path, tasks: int) -> None:
  """Until so many tasks are there, and a little of the next."""
  end = time.monotonic() + 60
  while len(_names(out)) < tasks:
    assert process.poll() is None and time.monotonic() < end
    time.sleep(0.001)


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 8))]
)
def test_killed_at_any_moment_it_leaves_whole_tasks_and_goes_on(
    number, tmp_path, started, unbroken
):
  out, rng = tmp_path / "tasks", random.Random(number)
  _wait_for(started, out, rng.randint(1, COUNT // 2))
  time.sleep(rng.random() * 0.03)
  workers = _children(started.pid)
  started.send_signal(signal.SIGKILL)
  started.wait()
  end = time.monotonic() + 10
  while any(map(_alive, workers)):  # tied to it
    assert time.monotonic() < end
    time.sleep(0.01)
  left = _all_whole(out)
  assert 0 < left < COUNT
  again = subprocess.run(
      _command(out), capture_output=True, text=True, timeout=120, check=True
  )
  summary = json.loads(again.stdout.splitlines()[-1])
  assert (summary["already_there"], summary["made"]) == (left, COUNT - left)
  assert _contents(out) == unbroken


def test_a_worker_that_is_killed_is_named_and_the_same_command_goes_on(
    tmp_path, started, unbroken
):
  out = tmp_path / "tasks"
  _wait_for(started, out, 4)
  works = [c for c in _children(started.pid) if b"spawn_main" in _line_of(c)]
  os.kill(works[0], signal.SIGKILL)
  _, said = started.communicate(timeout=60)
  assert started.returncode == 1 and "Traceback" not in said
  assert "a worker was ended from outside" in said and "run the same command" in said
  assert 0 < _all_whole(out) < COUNT
  subprocess.run(_command(out), capture_output=True, timeout=120, check=True)
  assert _contents(out) == unbroken


def _line_of(process: int) -> bytes:
  return Path(f"/proc/{process}/cmdline").read_bytes()


SCRIPT = """
cd {here}
{command} >{kept}/out.1 2>{kept}/err.1
echo $? >{kept}/rc.1
cp -r {disk} {kept}/full
rm {disk}/ballast
{command} >{kept}/out.2 2>{kept}/err.2
echo $? >{kept}/rc.2
cp -r {disk} {kept}/whole
"""


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bwrap gives the small disk")
def test_a_full_disk_is_named_and_leaves_whole_tasks(tmp_path, unbroken):
  """On a disk of 8 MiB with something on it, then without that."""
  kept, disk = tmp_path / "kept", tmp_path / "disk"
  kept.mkdir()
  disk.mkdir()
  size = 8 << 20
  held = size - sum(map(len, unbroken.values())) // 2
  script = f"head -c {held} /dev/zero >{disk}/ballast\n" + SCRIPT.format(
      here=Path.cwd(), kept=kept, disk=disk,
      command=" ".join(_command(disk / "tasks")),
  )  # fmt: skip
  subprocess.run(
      ["bwrap", "--dev-bind", "/", "/", "--size", str(size), "--tmpfs", str(disk),
       "sh", "-c", script],
      timeout=120, check=True,
  )  # fmt: skip
  said = (kept / "err.1").read_text()
  assert (kept / "rc.1").read_text() == "1\n" and "Traceback" not in said
  assert "No space left on device" in said and "run the same command again" in said
  assert _all_whole(kept / "full" / "tasks") < COUNT
  assert (kept / "rc.2").read_text() == "0\n", (kept / "err.2").read_text()
  assert _contents(kept / "whole" / "tasks") == unbroken
