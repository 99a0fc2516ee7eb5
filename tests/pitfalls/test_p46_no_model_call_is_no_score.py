"""P46: an attempt in which no model ever answered is unscored, never 0."""

import asyncio

from sandbox.fleet import attempt_task
from sandbox.harnesses import HarnessResult, load
from sandbox.harnesses.claw import Claw
from tests.sandbox.scripted_api import serve
from tests.sandbox.small_task import make_task


class Silent(Claw):
  async def run(self, attempt):
    return HarnessResult("done")


def test_zero_model_calls(tmp_path):
  task = make_task(tmp_path / "t")
  outcome = asyncio.run(attempt_task(task, Silent())).outcome
  assert outcome.status == "unscored" and outcome.cause.startswith("no_model_calls")

  async def refused():
    async with serve((500, {}, "out of memory")) as api:
      return (await attempt_task(task, load("claw"), base_url=api.url)).outcome

  outcome = asyncio.run(refused())
  assert outcome.status == "unscored" and "out of memory" in outcome.cause
