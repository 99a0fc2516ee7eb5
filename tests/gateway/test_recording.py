"""What ends up in the pool: exact ids, deltas, forks with their cause."""

import pytest

from clawgym_jax.chat.conversation import Conversation, prompt_ids
from tests.gateway.engine import TOOLS, call

S = {"role": "system", "content": "be brief"}
U = {"role": "user", "content": "read notes.txt"}


def _result(message, text, index=0):
  return {
      "role": "tool",
      "tool_call_id": message["tool_calls"][index]["id"],
      "content": text,
  }


def _check_exact(engine, steps):
  """What the pool holds along each path is what the engine saw and said."""
  by_id = {step.step_id: step for step in steps}
  for step, prompt in zip(steps, engine.prompts):
    held = list(step.prompt_ids)
    node = step
    while node.parent_id is not None:
      node = by_id[node.parent_id]
      held = node.prompt_ids + node.response_ids + held
    assert held == prompt


def test_a_conversation_is_one_path_of_exact_ids(run, pool, engine):
  async def scenario(harness):
    engine.script = [call("read", path="notes.txt"), call("exec", command="ls"), "bye"]
    messages = [S, U]
    for _ in range(2):
      said = await harness.say(messages)
      messages += [said, _result(said, "the quick fox")]
    status, body = await harness.post(messages)
    assert status == 200
    return body, pool.steps(harness.trajectory_id)

  body, steps = run(scenario)
  assert body["choices"][0]["message"]["content"] == "bye"
  assert body["choices"][0]["finish_reason"] == "stop"
  assert body["usage"]["completion_tokens"] == len(steps[-1].response_ids)
  assert [s.parent_id for s in steps] == [None, "s0", "s1"]
  assert [s.fork_cause for s in steps] == [None] * 3
  assert [s.finish_reason for s in steps] == ["tool_calls", "tool_calls", "stop"]
  assert steps[0].tools == TOOLS and steps[1].tools is None
  assert [len(s.messages) for s in steps] == [2, 1, 1]
  assert steps[2].policy_versions == [3] * len(steps[2].response_ids)
  _check_exact(engine, steps)
  tok = engine.tokenizer
  assert steps[0].prompt_ids == prompt_ids(tok, [S, U], TOOLS)
  conversation = Conversation.start(tok, [S, U], TOOLS)
  conversation.append_response(steps[0].response_ids)
  assert steps[1].prompt_ids == conversation.extend(steps[1].messages)


def test_harnesses_may_spell_it_differently(run, pool, engine):
  async def scenario(harness):
    engine.script = [
        "looking" + call("read", path="é.txt", limit=1.0) + call("exec", command="ls"),
        "bye",
    ]
    said = await harness.say([S, U])
    first, second = said["tool_calls"]
    assert first["id"].isalnum() and first["id"] != second["id"]
    spelled = {
        "content": [{"type": "text", "text": "looking"}],
        "role": "assistant",
        "reasoning_content": "",
        "tool_calls": [
            {
                "function": {
                    "arguments": '{"limit":1,"path":"\\u00e9.txt"}',
                    "name": "read",
                },
                "type": "function",
                "id": "renamed1",
            },
            {**second, "id": "renamed2"},
        ],
    }
    system = {"role": "developer", "content": [{"type": "text", "text": "be brief"}]}
    results = [
        {"role": "tool", "tool_call_id": "renamed1", "name": "read", "content": "a"},
        {"role": "tool", "tool_call_id": "renamed2", "name": "exec", "content": "b"},
    ]
    await harness.say([system, U, spelled, *results])
    return pool.steps(harness.trajectory_id)

  first, second = run(scenario)
  assert second.parent_id == first.step_id and second.fork_cause is None
  _check_exact(engine, [first, second])


@pytest.mark.parametrize(
    ("cause", "change"),
    [
        (
            "history_rewritten",
            lambda m, t: ([S, U, {**m[2], "content": "x"}, *m[3:]], t),
        ),
        ("system_changed", lambda m, t: ([{**S, "content": "other"}, *m[1:]], t)),
        ("tools_changed", lambda m, t: (m, t[:1])),
        ("new_conversation", lambda m, t: ([S, {**U, "content": "help"}], t)),
        ("resampled", lambda m, t: ([S, U], t)),
        (
            "compaction",
            lambda m, t: ([S, {**U, "content": "summary"}, m[4], m[5]], t),
        ),
    ],
)
def test_anything_else_is_a_root_with_its_cause(run, pool, engine, cause, change):
  async def scenario(harness):
    engine.script = [call("read", path="a"), call("read", path="b"), "bye", "forked"]
    messages = [S, U]
    for _ in range(2):
      said = await harness.say(messages)
      messages += [said, _result(said, "text")]
    await harness.say(messages)
    changed, tools = change(messages, TOOLS)
    await harness.say(changed, tools=tools)
    return changed, tools, pool.steps(harness.trajectory_id)

  changed, tools, steps = run(scenario)
  fork = steps[-1]
  assert (fork.parent_id, fork.fork_cause) == (None, cause)
  assert len(fork.messages) == len(changed) and fork.tools == tools
  _check_exact(engine, steps)


def test_a_moving_tail_is_named(run, pool, engine):
  tail = {
      "role": "user",
      "content": [{
          "type": "text",
          "text": "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>> time",
      }],
  }

  async def scenario(harness):
    engine.script = [call("read", path="a"), "bye"]
    said = await harness.say([S, U, tail])
    await harness.say([S, U, said, _result(said, "text"), tail])
    return pool.steps(harness.trajectory_id)

  assert run(scenario)[1].fork_cause == "moving_tail"


def test_an_earlier_turn_may_be_continued_again(run, pool, engine):
  async def scenario(harness):
    engine.script = [call("read", path="a"), "one", "two"]
    said = await harness.say([S, U])
    for text in ("first", "second"):
      await harness.say([S, U, said, _result(said, text)])
    return pool.steps(harness.trajectory_id)

  steps = run(scenario)
  assert [s.parent_id for s in steps] == [None, "s0", "s0"]
  _check_exact(engine, steps)


def test_a_cut_response_goes_on_from_its_ids(run, pool, engine):
  tok = engine.tokenizer
  cut = tok.encode("the quick brown")

  async def scenario(harness):
    engine.script = [cut, "fox"]
    status, body = await harness.post([S, U])
    assert body["choices"][0]["finish_reason"] == "length"
    said = body["choices"][0]["message"]
    await harness.say([S, U, said, {"role": "user", "content": "go on"}])
    return pool.steps(harness.trajectory_id)

  first, second = run(scenario)
  assert first.response_ids == cut
  assert second.parent_id == "s0"
  assert second.prompt_ids[0] == tok.eos_id  # closed by the prompt: untrained
  _check_exact(engine, [first, second])


def test_a_call_that_cannot_be_read_is_content(run, pool, engine):
  broken = '<tool_call>{"name": "read", "arguments": {"path": "a"</tool_call>'

  async def scenario(harness):
    engine.script = [broken, engine.tokenizer.encode(call("read", path="a")[:-4])]
    said = await harness.say([S, U])
    told = {"role": "user", "content": said["parse_error"]}
    cut = await harness.say([S, U, said, told])
    return said, cut, pool.steps(harness.trajectory_id)

  said, cut, steps = run(scenario)
  assert said["content"] == broken and "tool_calls" not in said
  assert "delimiter" in said["parse_error"] and "cut at its" in cut["parse_error"]
  assert "tool_calls" not in cut and steps[1].finish_reason == "length"
  assert steps[1].parent_id == "s0"  # what the model is told extends its turn
  _check_exact(engine, steps)


def test_a_call_that_may_be_a_thought_is_not_made(run, pool, engine):
  async def scenario(harness):
    engine.script = [call("read", path="a") + "</think>" + call("exec", command="b")]
    return await harness.say([S, U])

  assert "tool_calls" not in run(scenario)  # thought or call: not said clearly


def test_pinned_sampling_wins_and_is_recorded(run, pool, engine):
  async def scenario(harness):
    await harness.say([S, U], temperature=0.2, top_p=0.5, max_completion_tokens=9999)
    await harness.say([S, U], temperature=0.2)
    return pool.steps(harness.trajectory_id)

  first, second = run(
      scenario, pins={"temperature": 0.6, "max_tokens": 32, "seed": 1}
  )
  assert engine.bodies[0]["temperature"] == 0.6
  assert engine.bodies[0]["top_p"] == 0.5
  assert engine.bodies[0]["max_tokens"] == 32
  assert engine.bodies[0]["seed"] != engine.bodies[1]["seed"]
  assert first.sampling["temperature"] == 0.6
  assert first.sampling["overridden"] == {"temperature": 0.2, "max_tokens": 9999}
  assert second.sampling["seed"] == engine.bodies[1]["seed"]
