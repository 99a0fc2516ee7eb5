"""P05: a message with tool calls goes through the gateway with its meaning."""

import json

from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401
from tests.gateway.engine import TOOLS, call

U = {"role": "user", "content": "hello"}


def test_p05(run, pool, engine):
  arguments = {"path": "é \"x\"\n", "deep": {"n": [1, 2.5, None, True]}}

  async def scenario(harness):
    engine.script = ["first" + call("read", **arguments) + call("exec", command="ls")]
    said = await harness.say([U], tools=TOOLS)
    await harness.say([U, said, {"role": "tool", "content": "x", "tool_call_id": "1"}])
    return said, pool.steps(harness.trajectory_id)

  said, steps = run(scenario)
  functions = [call["function"] for call in said["tool_calls"]]
  assert [function["name"] for function in functions] == ["read", "exec"]
  assert json.loads(functions[0]["arguments"]) == arguments
  assert steps[0].response == said
  assert (steps[1].parent_id, len(steps[1].messages)) == ("s0", 1)
