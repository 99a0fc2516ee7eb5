"""P07: whatever ids are sampled, the next prompt starts with exactly those."""

import random

from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401

U = {"role": "user", "content": "hello"}


def test_p07(run, pool, engine):
  rng = random.Random(0)
  tok = engine.tokenizer
  turns = 12

  async def scenario(harness):
    messages = [U]
    for _ in range(turns):
      ids = [rng.randrange(tok.vocab_size) for _ in range(rng.randrange(1, 40))]
      engine.script = [ids + [tok.eos_id] * rng.randrange(2)]
      messages += [await harness.say(messages), U]
    return pool.steps(harness.trajectory_id)

  steps = run(scenario)
  assert [step.parent_id for step in steps] == [None] + [
      f"s{n}" for n in range(turns - 1)
  ]
  held = []
  for step, prompt in zip(steps, engine.prompts, strict=True):
    held += step.prompt_ids
    assert held == prompt
    held += step.response_ids
