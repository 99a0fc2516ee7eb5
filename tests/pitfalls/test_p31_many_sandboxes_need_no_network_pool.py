"""P31: 64 sandboxes at once, each without any network of its own to allot."""

import asyncio

from sandbox.backends import open_sandbox


def test_64_at_once():
  async def whole():
    boxes = [open_sandbox() for _ in range(64)]
    try:
      await asyncio.gather(*(box.start({"n": b"%d" % i}) for i, box in enumerate(boxes)))
      results = await asyncio.gather(
          *(box.exec("cat n; echo; cat /proc/net/dev", 30) for box in boxes)
      )
      for i, result in enumerate(results):
        number, *table = result.output.splitlines()
        devices = [line.split(":")[0].strip() for line in table if ":" in line]
        assert (number, devices) == (str(i), ["lo"]), result.output
    finally:
      await asyncio.gather(*(box.stop() for box in boxes))

  asyncio.run(whole())
