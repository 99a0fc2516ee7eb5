"""Children end with their parent's wish, and what failed is said."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from clawgym_jax.contracts.errors import UserError
from launch import children
from tests.conftest import ROOT

SERVER = """
import json, os, sys, time
path = [a for a in sys.argv if a.startswith("--ready_file=")][0].split("=", 1)[1]
child = os.fork()
if not child:
  time.sleep(300)
open(path + ".tmp", "w").write(json.dumps({"url": "http://x", "pids": [os.getpid(), child]}))
os.rename(path + ".tmp", path)
time.sleep(300)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
  """Writes a program that `python -m` finds, and gives its name."""
  monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")

  def write(program):
    (tmp_path / "program_under_test.py").write_text(program)
    return "program_under_test"

  return write


def alive(pid):
  try:
    os.kill(pid, 0)
  except ProcessLookupError:
    return False
  state = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
  return state != "Z"


def gone(pids, seconds=10.0):
  end = time.monotonic() + seconds
  while time.monotonic() < end:
    if not any(alive(pid) for pid in pids):
      return True
    time.sleep(0.05)
  return False


def test_a_failure_names_the_program_and_its_log(tmp_path, module):
  log = tmp_path / "x.log"
  name = module("import sys; print(sys.argv[1]); raise SystemExit(3)")
  with pytest.raises(UserError, match=rf"{name}.*status 3.*{log}.*same command again"):
    children.run(name, {"a": 1}, log)
  assert log.read_text() == "--a=1\n"
  with pytest.raises(KeyboardInterrupt):
    children.run(module("raise SystemExit(130)"), {}, log)


def test_a_server_and_its_children_end_with_the_block(tmp_path, module):
  ready, log = tmp_path / "ready", tmp_path / "log"
  with children.serving(module(SERVER), {}, ready, log) as server:
    pids = json.loads(ready.read_text())["pids"]
    assert server.url == "http://x" and all(alive(pid) for pid in pids)
  assert gone(pids) and not ready.exists()


def test_a_server_that_does_not_start_says_why(tmp_path, module):
  places = tmp_path / "ready", tmp_path / "log"
  with pytest.raises(UserError, match="did not start: .*port 80 is taken"):
    with children.serving(module("raise SystemExit('port 80 is taken')"), {}, *places):
      raise AssertionError("not reached")
  with pytest.raises(UserError, match="not ready after 1 s"):
    sleeper = module("import time; time.sleep(60)")
    with children.serving(sleeper, {}, *places, deadline=0.6):
      raise AssertionError("not reached")


def test_work_ends_with_the_server_that_it_needs(tmp_path, module):
  name = module("import time; time.sleep(300)")
  ready = tmp_path / "ready"
  program = SERVER.replace("time.sleep(300)\n", "time.sleep(1); sys.exit('out of memory')\n")
  (tmp_path / "server_under_test.py").write_text(program)
  started = time.monotonic()
  with children.serving("server_under_test", {}, ready, tmp_path / "log") as server:
    with pytest.raises(UserError, match="ended while it was needed.*out of memory"):
      children.run(name, {}, tmp_path / "work.log", needs=server)
  assert time.monotonic() - started < 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_child_stops_with_its_parent_and_may_save(tmp_path, module, number):
  name = module(
      "import os, time, pathlib\n"
      "from clawgym_jax import cli\n"
      f"here = pathlib.Path(r'{tmp_path}')\n"
      "def main():\n"
      "  (here / 'started').write_text(str(os.getpid()))\n"
      "  try: time.sleep(60)\n"
      "  finally: (here / 'saved').touch()\n"
      "if __name__ == '__main__': cli.run(main)\n"
  )
  program = (
      "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
      "from pathlib import Path; from launch import children\n"
      f"children.run('{name}', {{}}, Path(r'{tmp_path}/log'))\n"
  )
  parent = subprocess.Popen(
      [sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE
  )
  started, end = tmp_path / "started", time.monotonic() + 20
  while not (started.exists() and started.read_text()) and time.monotonic() < end:
    time.sleep(0.05)
  time.sleep(0.2)
  parent.send_signal(number)
  assert parent.wait(20) != 0
  assert gone([int(started.read_text())])
  assert (tmp_path / "saved").exists()


def test_peak_memory_counts_children():
  """In a process of its own: that of the tests may hold anything."""
  size = 200 << 20
  hog = f"b = bytearray({size}); b[::4096] = b'x' * len(b[::4096]); import time; time.sleep(1.5)"
  program = f"""
import json, subprocess, sys
from launch import children
told = []
with children.PeakMemory(told.append, period=0.1) as memory:
  subprocess.run([sys.executable, "-c", {hog!r}])
print(json.dumps([memory.peak, told[-1]]))
"""
  done = subprocess.run(
      [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
  )
  peak, last = json.loads(done.stdout)
  assert size < peak < size + (300 << 20)
  assert last["peak_bytes"] == peak and last["seconds"] > 1.5
