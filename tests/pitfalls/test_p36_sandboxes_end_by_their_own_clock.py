"""P36: a sandbox whose controller hangs for ever ends when its life is over."""

import os
import signal
import subprocess
import sys
import time

from sandbox.backends.labels import labelled

CONTROLLER = """
import asyncio
from sandbox.backends import Bounds, open_sandbox
async def main():
  box = await open_sandbox(bounds=Bounds(lifetime_seconds=2)).start()
  await box.exec("setsid sleep 1000 &")
  print("ready", flush=True)
  await asyncio.sleep(1000)
asyncio.run(main())
"""


def test_a_hanging_controller():
  controller = subprocess.Popen(
      [sys.executable, "-c", CONTROLLER],
      stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()},
  )  # fmt: skip
  try:
    assert controller.stdout.readline() == "ready\n"
    os.kill(controller.pid, signal.SIGSTOP)
    end = time.monotonic() + 15
    while any(mark.pid == controller.pid for mark in labelled().values()):
      assert time.monotonic() < end
      time.sleep(0.05)
  finally:
    controller.kill()
    controller.wait()
