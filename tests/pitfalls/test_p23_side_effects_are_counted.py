"""P23: a side effect that happens twice is seen twice, by checks and in the record."""

import asyncio

from sandbox.fleet import attempt_task
from sandbox.harnesses import load
from tests.sandbox.scripted_api import call, reply, serve
from tests.sandbox.service_task import BY_TOOLS, make_task


def test_duplicates_are_flagged(tmp_path):
  """The same calls made again, as after an abort that nobody noticed."""
  task = make_task(tmp_path / "t")
  once = [reply(None, call(c.name, **c.arguments)) for c in BY_TOOLS]

  async def whole(*answers):
    async with serve(*answers, reply("Done.")) as api:
      return await attempt_task(task, load("claw"), base_url=api.url, turns=20)

  single, double = (asyncio.run(whole(*once * times)) for times in (1, 2))
  assert single.outcome.score == 1.0 and single.duplicates == []
  assert double.outcome.checks == {"sent_once": 0.0, "sent": 1.0, "added": 0.0}
  assert [r["data"]["id"] for r in double.reports] == ["e2", "m1", "e3", "m2"]
  assert [(d["service"], d["times"]) for d in double.duplicates] == [
      ("calendar", 2), ("outbox", 2),
  ]  # fmt: skip
