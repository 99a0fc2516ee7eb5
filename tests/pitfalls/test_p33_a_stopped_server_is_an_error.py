"""P33: SIGSTOP of the sandbox's server: the caller errors within its bound."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from sandbox.backends import Bounds, SandboxLost, open_sandbox


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_the_caller_errors_within_its_bound(how):
  async def whole():
    async with open_sandbox(bounds=Bounds(grace_seconds=1.0)) as sandbox:
      await sandbox.start()
      (init,) = Path(f"/proc/{sandbox.pid}/task/{sandbox.pid}/children").read_text().split()
      os.kill(int(init), how)
      started = time.monotonic()
      with pytest.raises(SandboxLost):
        await sandbox.exec("echo", 1.0)
      assert time.monotonic() - started < 5.0
      with pytest.raises(SandboxLost):
        await sandbox.read("x")

  asyncio.run(whole())
