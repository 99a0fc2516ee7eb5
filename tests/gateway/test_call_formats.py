"""Calls are read in the format of the model's own template, thought as it opens it."""

import json

import pytest

from clawgym_jax.chat.template import ChatTemplate
from clawgym_jax.chat.tokenizer import Tokenizer
from tests.gateway.engine import TOOLS

U = {"role": "user", "content": "hello"}

_TURNS = """
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

SAID = {
    "<function=f> <parameter=p>": "<tool_call>\n<function=read>\n<parameter=path>\na"
    "\n</parameter>\n</function>\n</tool_call>",
    "[TOOL_CALLS]": '[TOOL_CALLS]read[ARGS]{"path": "a"}',
    "<|python_tag|>": '{"name": "read", "parameters": {"path": "a"}}',
    "<tool_call>": '<tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>',
}


def with_template(tokenizer, source):
  """The same vocabulary with another template, as a model's files give it."""
  files = tokenizer.to_files()
  config = json.loads(files["tokenizer_config.json"])
  files["tokenizer_config.json"] = json.dumps({**config, "chat_template": source})
  files["chat_template.jinja"] = source
  made = Tokenizer.from_files(files)
  assert isinstance(made.template, ChatTemplate) and made.template.source == source
  return made


@pytest.mark.parametrize("mark", SAID)
def test_the_template_says_the_format(run, engine, mark):
  told = "{%- if tools -%}{{- '" + mark + "' -}}{%- endif -%}"
  engine.tokenizer = with_template(engine.tokenizer, told + _TURNS)

  async def scenario(harness):
    engine.script = [SAID[mark], *(text for text in SAID.values() if text != SAID[mark])]
    return [await harness.say([U], tools=TOOLS, seed=n) for n in range(len(SAID))]

  said, *others = run(scenario)
  (call,) = said["tool_calls"]
  assert call["function"] == {"name": "read", "arguments": '{"path": "a"}'}
  assert not any("tool_calls" in other for other in others)


def test_a_thought_that_the_prompt_opened_is_no_call(run, engine):
  opened = _TURNS.replace("assistant\\n' -}}", "assistant\\n<think>\\n' -}}")
  engine.tokenizer = with_template(engine.tokenizer, opened)
  call = SAID["<tool_call>"]

  async def scenario(harness):
    engine.script = [f"Or {call}?\n</think>\n\n{call}"]
    return await harness.say([U])

  said = run(scenario)
  assert said["reasoning_content"] == f"Or {call}?" and said["content"] is None
  assert len(said["tool_calls"]) == 1


def test_a_template_that_rewrites_earlier_turns_forks(run, pool, engine):
  """A policy can't make its conversation one that can't be judged."""
  content = "(message.content or '')"
  forgets = _TURNS.replace(content, content + ".split('</think>')[-1]")
  engine.tokenizer = with_template(engine.tokenizer, forgets)

  async def scenario(harness):
    engine.script = ["<think>Hm.</think><tool_call>{", "<think>Ah.</think>Done.", "Yes."]
    messages = [U]
    for told in ("parse_error", "content"):
      said = await harness.say(messages)
      messages += [said, {"role": "user", "content": said[told]}]
    await harness.say(messages)
    return pool.steps(harness.trajectory_id)

  steps = run(scenario)
  assert [s.parent_id for s in steps] == [None] * 3
  assert [s.fork_cause for s in steps] == [None, *["template_rewrites"] * 2]
  assert [len(s.messages) for s in steps] == [1, 3, 5]
  assert [s.prompt_ids for s in steps] == engine.prompts
  assert steps[0].tools == steps[1].tools == TOOLS
  second = engine.tokenizer.decode(engine.prompts[1])
  assert "Hm." not in second and "<tool_call>{" in second
