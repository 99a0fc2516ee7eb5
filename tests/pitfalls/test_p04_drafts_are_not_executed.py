"""P04: of a call drafted in thought and the real one, exactly the real one is made."""

import json

from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401
from tests.gateway.engine import call

U = {"role": "user", "content": "hello"}


def test_p04(run, pool, engine):
  draft, real = call("exec", command="a"), call("exec", command="b")
  ids = engine.tokenizer.encode(f"<think>{draft}</think>{real}")
  ids.append(engine.tokenizer.eos_id)

  async def scenario(harness):
    engine.script = [ids, f"<think>{draft}"]
    said = await harness.say([U])
    thought = await harness.say([U, said, U])
    return said, thought, pool.steps(harness.trajectory_id)

  said, thought, steps = run(scenario)
  (made,) = said["tool_calls"]
  assert json.loads(made["function"]["arguments"]) == {"command": "b"}
  assert said["reasoning_content"] == draft
  assert "tool_calls" not in thought and "</think>" in thought["parse_error"]
  assert steps[0].response_ids == ids
