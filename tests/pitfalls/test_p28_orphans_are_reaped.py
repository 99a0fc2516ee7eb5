"""P28: 200 orphans leave no zombie, and the number of processes is bounded."""

import asyncio

from sandbox.backends import Bounds, open_sandbox


def test_200_orphans_leave_no_zombie():
  async def whole():
    async with open_sandbox() as sandbox:
      await sandbox.start()
      result = await sandbox.exec(
          "for i in $(seq 10); do for j in $(seq 20); do (sleep .02 &); done;"
          " sleep .1; done; sleep .3; echo made", 30
      )
      assert result.output == "made\n"
      assert await sandbox.processes() == []

  asyncio.run(whole())


def test_a_fork_bomb_is_bounded_and_ends():
  async def whole():
    async with open_sandbox(bounds=Bounds(processes=32)) as one:
      async with open_sandbox(bounds=Bounds(processes=32)) as other:
        await one.start()
        await other.start()
        bomb = asyncio.create_task(one.exec(":(){ :|:& };: ; sleep 30", 2.0))
        most = 0
        while not bomb.done():
          most = max(most, len(await one.processes()))
          neighbour = await other.exec("sleep .01 | cat | cat; echo fine", 10)
          assert neighbour.output == "fine\n"
        assert 8 < most <= 32
        assert (await bomb).timed_out
        await asyncio.sleep(0.2)
        assert await one.processes() == []
        assert (await one.exec("echo alive", 10)).output == "alive\n"

  asyncio.run(whole())
