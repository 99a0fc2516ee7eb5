"""P30: kill -9 of the controller leaves no sandbox; the reaper takes what is left
of dead runs and never what is of living ones; a full disk is said beforehand."""

import os
import subprocess
import sys
import time

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import require_room
from sandbox.backends.labels import label, labelled
from sandbox.fleet import RunSettings, roll_out, run
from sandbox.reap import reap
from tests.sandbox.small_task import make_task

CONTROLLER = """
import asyncio
from sandbox.backends import open_sandbox
async def main():
  boxes = [await open_sandbox().start() for _ in range(4)]
  await asyncio.gather(*(box.exec("setsid sleep 1000 &") for box in boxes))
  print("ready", flush=True)
  await asyncio.sleep(1000)
asyncio.run(main())
"""


def spawn(code, *argv):
  return subprocess.Popen(
      [sys.executable, "-c", code, *argv],
      stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()},
  )  # fmt: skip


def test_kill_9_leaves_no_sandbox():
  controller = spawn(CONTROLLER)
  assert controller.stdout.readline() == "ready\n"
  mine = [pid for pid, mark in labelled().items() if mark.pid == controller.pid]
  assert len(mine) == 8  # bwrap and process 1 of each
  controller.kill()
  controller.wait()
  end = time.monotonic() + 10
  while any(mark.pid == controller.pid for mark in labelled().values()):
    assert time.monotonic() < end
    time.sleep(0.02)


def test_the_reaper_takes_dead_runs_alone():
  idle = "print('up', flush=True); import time; time.sleep(1000)"
  dead = subprocess.Popen([sys.executable, "-c", ""])
  foreign = label("run", 60).replace(f":{os.getpid()}:", f":{dead.pid}:")
  dead.wait()
  orphan, living = spawn(idle, foreign), spawn(idle, label("run", 60))
  other_host = spawn(idle, foreign.replace(foreign.split(":")[2], "42"))
  for process in (orphan, living, other_host):
    process.stdout.readline()
  assert reap()["killed"] >= 1
  assert orphan.wait(10) == -9
  assert living.poll() is None and other_host.poll() is None
  for process in (living, other_host):
    process.kill()
    process.wait()


@pytest.mark.parametrize("program", ["sandbox.rollout", "data_gen.audit"])
def test_the_next_start_reaps(tmp_path, program):
  make_task(tmp_path / "tasks" / "t")
  dead = subprocess.Popen([sys.executable, "-c", ""])
  dead.wait()
  for run_id, pid in (("dead", dead.pid), ("living", os.getpid())):
    name = label(run_id, 60).replace(f":{os.getpid()}:", f":{pid}:")
    (tmp_path / "tmp" / f"{name}:1").mkdir(parents=True)
  command = [sys.executable, "-m", program, f"--tasks={tmp_path / 'tasks'}"]
  if program == "sandbox.rollout":
    command += ["--harness=oracle", f"--out={tmp_path / 'out'}"]
  else:
    command += ["--attacks_only"]
  env = {**os.environ, "PYTHONPATH": os.getcwd(), "TMPDIR": str(tmp_path / "tmp")}
  subprocess.run(command, env=env, check=True, capture_output=True)
  (left,) = (tmp_path / "tmp").iterdir()
  assert ":living:" in left.name


def test_a_full_disk_is_said_before_work_starts(tmp_path, monkeypatch):
  make_task(tmp_path / "tasks" / "t")
  monkeypatch.setattr(
      run, "require_room", lambda folder: require_room(folder, free=1 << 60)
  )
  with pytest.raises(UserError, match="out has [0-9]+ MiB left, of"):
    roll_out(
        RunSettings(out=tmp_path / "out", harness="null", tasks=tmp_path / "tasks")
    )
