"""P16: a failed upstream call leaves pool and tree as they were."""

from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401

U = [{"role": "user", "content": "hello"}]
RETRY = {"x-stainless-retry-count": "1"}


def test_p16(run, pool, engine):
  async def scenario(harness):
    engine.script = [(503, {"error": "updating"}, {"Retry-After": "30"})]
    status, body = await harness.post(U)
    assert (status, body["error"]["code"]) == (503, "upstream_unavailable")
    assert "updating" in body["error"]["message"]
    assert pool.steps(harness.trajectory_id) == []
    await harness.say(U, headers=RETRY)
    return pool.steps(harness.trajectory_id)

  (step,) = run(scenario, deadline=2.0)
  assert (step.step_id, step.fork_cause) == ("s0", None)
