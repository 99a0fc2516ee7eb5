"""Reading calls from what a model said."""

import json

from clawgym_jax.chat.response import parse_response

CALL = '<tool_call>{"name": "exec", "arguments": {"command": "ls \\"a\\""}}</tool_call>'


def names(message):
  return [c["function"]["name"] for c in message.get("tool_calls", [])]


def test_every_call_is_kept_in_order():
  message = parse_response("On it.\n" + CALL + "\n" + CALL.replace("exec", "read"))
  assert names(message) == ["exec", "read"]
  assert message["content"] == "On it."
  assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {
      "command": 'ls "a"'
  }
  assert len({c["id"] for c in message["tool_calls"]}) == 2
  assert all(c["id"].isalnum() for c in message["tool_calls"])


def test_what_cannot_be_read_stays_text():
  for text in (
      "plain",
      CALL[:-20],
      '<tool_call>{"name": "exec"</tool_call>',
      '<tool_call>{"name": "exec", "arguments": "ls"}</tool_call>',
      '<tool_call>["exec"]</tool_call>',
      CALL + "<tool_call>",
  ):
    message = parse_response(text)
    assert names(message) == [] and message["content"] == text


def test_a_call_drafted_in_thought_is_not_made():
  message = parse_response(f"<think>maybe {CALL}</think>\n" + CALL)
  assert names(message) == ["exec"] and "maybe" in message["reasoning_content"]
  assert names(parse_response(f"<think>maybe {CALL}</think>No.")) == []
  assert names(parse_response(f"<think>maybe {CALL}")) == []
