"""P14: a client that times out and asks again gets the one answer."""

import asyncio

import pytest

from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401

U = [{"role": "user", "content": "hello"}]
RETRY = {"x-stainless-retry-count": "1"}


def test_p14(run, pool, engine):
  engine.delay = 0.4

  async def scenario(harness):
    engine.script = ["one", "two"]
    with pytest.raises(asyncio.TimeoutError):
      await asyncio.wait_for(harness.post(U), 0.15)
    waiting = harness.post(U, headers=RETRY)  # it still runs: coalesces
    first = (await waiting)[1]["choices"][0]["message"]
    again = await harness.say(U, headers=RETRY)  # it is recorded
    assert first == again and first["content"] == "one"
    assert len(pool.steps(harness.trajectory_id)) == 1
    other = await harness.say(U)  # no retry: another sample
    assert other["content"] == "two"
    return pool.steps(harness.trajectory_id)

  assert [step.fork_cause for step in run(scenario)] == [None, "resampled"]
