"""P31: 64 sandboxes at once, each without any network of its own to allot."""

import asyncio

from sandbox.backends import open_sandbox


def test_64_at_once():
  async def whole():
    boxes = [open_sandbox() for _ in range(64)]
    try:
      await asyncio.gather(*(box.start({"n": b"%d" % i}) for i, box in enumerate(boxes)))
      results = await asyncio.gather(
          *(box.exec("cat n; ls /sys/class/net /proc/net/dev | wc -l", 30) for box in boxes)
      )
      assert [r.output.split()[0] for r in results] == [
          f"{i}ls:" if "ls:" in r.output.split()[0] else f"{i}1"
          for i, r in enumerate(results)
      ]
    finally:
      await asyncio.gather(*(box.stop() for box in boxes))

  asyncio.run(whole())
