"""P01: ids and log-probs of different length are an error, never padded."""

from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401

U = [{"role": "user", "content": "hello"}]


def test_p01(run, pool, engine):
  async def scenario(harness):
    ids = engine.tokenizer.encode("fox")
    engine.script = [
        (
            200,
            {
                "ids": ids,
                "logprobs": [-0.1] * (len(ids) + 1),
                "untempered_logprobs": [-0.1] * len(ids),
                "policy_versions": [0] * len(ids),
                "finish_reason": "length",
            },
            {},
        )
    ]
    status, _ = await harness.post(U)
    assert status == 502
    return pool.steps(harness.trajectory_id)

  assert run(scenario) == []
