"""P13: a conversation that shrinks forks with its cause; nothing asserts."""

from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401

S = {"role": "system", "content": "be brief"}


def test_p13(run, pool, engine):
  async def scenario(harness):
    messages = [S, {"role": "user", "content": "one"}]
    for text in ("two", "three", "four"):
      messages += [await harness.say(messages), {"role": "user", "content": text}]
    await harness.say([S, {"role": "user", "content": "summary"}, *messages[-2:]])
    return pool.steps(harness.trajectory_id)

  steps = run(scenario)
  assert [step.fork_cause for step in steps] == [None, None, None, "compaction"]
  assert steps[-1].parent_id is None
  # Nothing sampled is lost or held twice.
  sampled = [len(step.response_ids) for step in steps]
  assert len(sampled) == len(engine.prompts) == 4 and all(sampled)
