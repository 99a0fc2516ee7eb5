"""P34: once its sandbox is gone an agent makes no further model call, and the
attempt is unscored."""

import asyncio
import os
import signal

from sandbox.backends import open_sandbox
from sandbox.fleet import attempt
from sandbox.harnesses import load
from tests.sandbox.scripted_api import call, reply, serve
from tests.sandbox.small_task import make_task


def test_no_call_after_the_end(tmp_path, monkeypatch):
  boxes = []

  def opened(*args, **settings):
    boxes.append(open_sandbox(*args, **settings))
    return boxes[-1]

  monkeypatch.setattr(attempt, "open_sandbox", opened)
  task = make_task(tmp_path / "t")

  async def whole():
    async with serve(reply("", call("exec", command="sleep 20"))) as api:
      running = asyncio.create_task(
          attempt.attempt_task(task, load("claw"), base_url=api.url)
      )
      while not api.requests:
        await asyncio.sleep(0.02)
      await asyncio.sleep(0.2)
      os.kill(boxes[0].pid, signal.SIGKILL)
      result = await asyncio.wait_for(running, 10)
      assert result.outcome.status == "unscored"
      assert result.outcome.cause.startswith("sandbox_lost")
      assert len(api.requests) == 1

  asyncio.run(whole())
