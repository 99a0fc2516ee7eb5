"""P27: a command that runs out of time leaves no process behind."""

import asyncio
import time

from sandbox.backends import open_sandbox

LOOP = "while :; do :; done"
HIDDEN = (
    "import os\n"
    "if os.fork() == 0:\n"
    "  os.setsid()\n"
    "  if os.fork() == 0:\n"
    "    os.environ.clear()\n"
    "    while True: pass\n"
    "while True: pass\n"
)


def test_no_process_remains():
  async def whole():
    async with open_sandbox() as sandbox:
      await sandbox.start({"hidden.py": HIDDEN.encode()})
      await sandbox.exec("sleep 1000 > /dev/null 2>&1 &", 5)
      before = await sandbox.processes()
      assert len(before) == 1
      for command in (
          LOOP,
          f"trap '' TERM INT HUP; ({LOOP}) & {LOOP}",
          "python3 hidden.py",
          "nohup setsid sleep 1000 & sleep 1000",
      ):
        started = time.monotonic()
        result = await sandbox.exec(command, 1.0)
        assert result.timed_out and result.exit_code == 137
        assert time.monotonic() - started < 10
        await asyncio.sleep(0.1)  # for the kernel, to take down the killed
        assert await sandbox.processes() == before, command

  asyncio.run(whole())
