"""Children end with their parent's wish, and what failed is said."""

import json
import os
import signal
import subprocess
import sys
import threading
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


def test_a_failure_names_the_program_and_its_log(tmp_path):
  log = tmp_path / "x.log"
  with pytest.raises(UserError, match=rf"status 3.*{log}.*same command again"):
    children.run([sys.executable, "-c", "print('out'); raise SystemExit(3)"], log)
  assert log.read_text() == "out\n"
  with pytest.raises(KeyboardInterrupt):
    children.run([sys.executable, "-c", "raise SystemExit(130)"], log)


def test_a_server_and_its_children_end_with_the_block(tmp_path):
  ready, log = tmp_path / "ready", tmp_path / "log"
  with children.serving([sys.executable, "-c", SERVER], ready, log) as url:
    pids = json.loads(ready.read_text())["pids"]
    assert url == "http://x" and all(alive(pid) for pid in pids)
  assert gone(pids) and not ready.exists()


def test_a_server_that_does_not_start_says_why(tmp_path):
  with pytest.raises(UserError, match="did not start: .*port 80 is taken"):
    with children.serving(
        [sys.executable, "-c", "raise SystemExit('port 80 is taken')"],
        tmp_path / "ready",
        tmp_path / "log",
    ):
      raise AssertionError("not reached")
  with pytest.raises(UserError, match="not ready after 1 s"):
    with children.serving(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        tmp_path / "ready",
        tmp_path / "log",
        deadline=0.6,
    ):
      raise AssertionError("not reached")


def test_ctrl_c_reaches_the_child_which_may_save(tmp_path):
  program = (
      "import sys, time, pathlib\n"
      "from pathlib import Path\n"
      "from launch import children\n"
      "child = '''import time, pathlib\n"
      "pathlib.Path(r\"{0}/started\").touch()\n"
      "try: time.sleep(60)\n"
      "except KeyboardInterrupt: pathlib.Path(r\"{0}/saved\").touch(); raise SystemExit(130)'''\n"
      "children.run([sys.executable, '-c', child], Path(r'{0}/log'))\n"
  ).format(tmp_path)
  parent = subprocess.Popen(
      [sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE
  )
  end = time.monotonic() + 20
  while not (tmp_path / "started").exists() and time.monotonic() < end:
    time.sleep(0.05)
  time.sleep(0.2)
  parent.send_signal(signal.SIGINT)
  assert parent.wait(20) != 0
  assert (tmp_path / "saved").exists()


def test_peak_memory_counts_children():
  size = 200 << 20
  program = f"b = bytearray({size}); b[::4096] = b'x' * len(b[::4096]); import time; time.sleep(1.5)"
  with children.PeakMemory(period=0.1) as memory:
    thread = threading.Thread(
        target=subprocess.run, args=([sys.executable, "-c", program],)
    )
    thread.start()
    thread.join()
  assert size < memory.peak < size + (2 << 30)
