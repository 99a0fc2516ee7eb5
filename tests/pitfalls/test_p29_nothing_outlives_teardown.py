"""P29: after teardown nothing of the sandbox's namespace lives, whatever session
or process group it moved to."""

import asyncio
import os
from pathlib import Path

from sandbox.backends import open_sandbox
from sandbox.backends.labels import labelled


def in_namespace(namespace):
  found = []
  for entry in Path("/proc").iterdir():
    if entry.name.isdigit():
      try:
        if os.readlink(entry / "ns" / "pid") == namespace:
          found.append(int(entry.name))
      except OSError:
        continue
  return found


def test_killed_by_namespace():
  async def whole():
    async with open_sandbox() as sandbox:
      await sandbox.start()
      await sandbox.exec(
          "trap '' TERM HUP; setsid sh -c 'trap \"\" TERM HUP; sleep 1000' &"
          " (setsid sleep 1000 &)", 5
      )
      (init,) = Path(f"/proc/{sandbox.pid}/task/{sandbox.pid}/children").read_text().split()
      namespace = os.readlink(f"/proc/{init}/ns/pid")
      assert len(in_namespace(namespace)) >= 3
    for _ in range(100):
      if not in_namespace(namespace):
        break
      await asyncio.sleep(0.02)
    assert in_namespace(namespace) == []

  asyncio.run(whole())
  assert not [mark for mark in labelled().values() if mark.pid == os.getpid()]
