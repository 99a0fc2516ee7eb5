"""Every command stops when it is told to, wherever it is, and explains itself."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT

IN_A_GC_CALLBACK = """
import gc, sys, time
from clawgym_jax import cli

def slow(phase, info):
  if phase == "start" and ready:
    print("collecting", flush=True)
    time.sleep(2)

ready = []
gc.callbacks.append(slow)

def main():
  ready.append(1)
  try:
    gc.collect()
    ready.clear()
    time.sleep(30)
  finally:
    print("cleaned up", flush=True)

cli.run(main)
"""


@pytest.mark.parametrize(
    "number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_in_a_callback_of_the_collector_is_not_lost(number, status):
  """Python drops exceptions in there, and jax has such a callback."""
  process = subprocess.Popen(
      [sys.executable, "-c", IN_A_GC_CALLBACK],
      cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
  )  # fmt: skip
  try:
    assert process.stdout.readline() == "collecting\n"
    started = time.monotonic()
    process.send_signal(number)
    said, errors = process.communicate(timeout=20)
  finally:
    process.kill()
  assert process.returncode == status and said == "cleaned up\n"
  assert time.monotonic() - started < 10
  assert errors.endswith("stopped; the same command continues\n")
  assert "Traceback" not in errors


@pytest.mark.parametrize("delay", [0.5, 1.0, 1.5, 2.0, 2.5])
def test_a_child_stops_while_it_loads_and_after(delay, tmp_path):
  (tmp_path / "slow.py").write_text(
      "import time\nimport jax\nfrom clawgym_jax import cli\n"
      "if __name__ == '__main__':\n  cli.run(lambda: time.sleep(60))\n"
  )
  process = subprocess.Popen(
      [sys.executable, "-m", "clawgym_jax.tethered", str(os.getpid()), "slow"],
      cwd=ROOT,
      env=os.environ | {"PYTHONPATH": str(tmp_path)},
      stderr=subprocess.DEVNULL,
  )
  try:
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
  finally:
    process.kill()


def test_help_is_no_failure():
  done = subprocess.run(
      [sys.executable, "-m", "sandbox.reap", "--help"],
      cwd=ROOT, capture_output=True, text=True, timeout=60,
  )  # fmt: skip
  assert done.returncode == 0 and "--[no]json" in done.stdout
