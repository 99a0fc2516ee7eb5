"""P15: what will fail again is 4xx, what may pass later 5xx or 429, with the wait."""

import pytest

from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401

U = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("upstream", "expected", "calls"),
    [(400, 400, 1), (404, 400, 1), (413, 400, 1), (500, 503, 4)],
)
def test_p15(run, engine, upstream, expected, calls):
  async def scenario(harness):
    engine.script = [(upstream, {"error": "because"}, {})] * 9
    status, body = await harness.post(U)
    assert status == expected and "because" in body["error"]["message"]

  run(scenario)
  assert len(engine.bodies) == calls
