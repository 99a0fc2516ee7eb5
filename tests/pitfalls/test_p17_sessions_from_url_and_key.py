"""P17: no header is needed; a session that is not known is refused loudly."""

from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401

U = [{"role": "user", "content": "hello"}]


def test_p17(run, engine, capfd):
  async def scenario(harness):
    harness.key = "wrong"
    assert (await harness.post(U))[0] == 401
    harness.base_url = harness.base_url.replace("/s/g.0.0", "/s/nobody")
    status, body = await harness.post(U)
    assert status == 404 and "unknown session" in body["error"]["message"]
    harness.base_url = harness.base_url.replace("/s/nobody/v1", "/v1")
    status, body = await harness.post(U)
    assert status == 404 and "unknown session" in body["error"]["message"]

  run(scenario)
  assert engine.bodies == []
  assert "unknown session 'nobody'" in capfd.readouterr().err
