"""P25: what is recorded at T 0.6 is what the model gives at T 0.6, whatever an
agent asks for; and the untempered column what it gives at T 1."""

import numpy as np

from clawgym_jax.models.create import tiny_qwen3
from clawgym_jax.serve import Engine
from clawgym_jax.serve.http import app
from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401
from tests.serve.conftest import training_logprobs


def test_p25(run, pool, tokenizer):
  model = tiny_qwen3(tokenizer.vocab_size)
  shapes = dict(slots=1, max_len=128, decode_steps=2, prefill_shapes=[(1, 32)])

  async def scenario(harness):
    messages = [{"role": "user", "content": "read notes.txt"}]
    for _ in range(3):
      messages.append(await harness.say(messages, temperature=1.3, top_p=0.9))
      messages.append({"role": "user", "content": "go on"})
    return pool.steps(harness.trajectory_id)

  with Engine(model, tokenizer, policy_version=5, **shapes) as engine:
    pins = {"temperature": 0.6, "top_p": 1.0, "max_tokens": 8, "seed": 1}
    steps = run(scenario, pins=pins, upstream=app(engine))
  assert [step.parent_id for step in steps] == [None, "s0", "s1"]
  held = []
  for step in steps:
    held += step.prompt_ids
    ids = step.response_ids
    assert step.sampling["overridden"] == {"temperature": 1.3, "top_p": 0.9}
    assert step.policy_versions == [5] * len(ids)
    for recorded, temperature in (
        (step.logprobs, 0.6),
        (step.untempered_logprobs, 1.0),
    ):
      expected = training_logprobs(model, held, ids, temperature)
      np.testing.assert_allclose(recorded, expected, atol=1e-4)
    held += ids
