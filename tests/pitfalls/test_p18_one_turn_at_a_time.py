"""P18: one turn at a time per session; another one meanwhile is told so."""

import asyncio

from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401

U = [{"role": "user", "content": "hello"}]


def test_p18(run, pool, engine):
  engine.delay = 0.3

  async def scenario(harness):
    first = asyncio.create_task(harness.post(U))
    await asyncio.sleep(0.1)
    status, body = await harness.post([{"role": "user", "content": "other"}])
    assert (status, body["error"]["code"]) == (409, "session_busy")
    assert (await first)[0] == 200

  run(scenario)
