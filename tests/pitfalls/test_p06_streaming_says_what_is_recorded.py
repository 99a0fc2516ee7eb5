"""P06: streamed and plain answers have the same ids, counted by usage."""

import json

from tests.gateway.conftest import engine, pool, run, tokenizer  # noqa: F401
from tests.gateway.engine import call

U = [{"role": "user", "content": "hello"}]


def test_p06(run, pool, engine):
  async def scenario(harness):
    engine.script = ["looking" + call("read", path="a") + call("exec", command="b")]
    status, text = await harness.post(
        U, stream=True, stream_options={"include_usage": True}
    )
    assert status == 200
    return text, pool.steps(harness.trajectory_id)[0]

  text, step = run(scenario)
  events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
  assert events.pop() == "[DONE]"
  chunks = [json.loads(event) for event in events]
  assert chunks[-1]["usage"]["completion_tokens"] == len(step.response_ids)
  deltas = [c["choices"][0]["delta"] for c in chunks[:-1]]
  assert "".join(d.get("content", "") for d in deltas) == "looking"
  (calls,) = [d["tool_calls"] for d in deltas if "tool_calls" in d]
  assert [c["function"]["name"] for c in calls] == ["read", "exec"]
  assert [{k: v for k, v in c.items() if k != "index"} for c in calls] == (
      step.response["tool_calls"]
  )
  assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
