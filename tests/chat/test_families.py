"""Every template family: whole ids are transformers', incremental ids are whole ids.

The templates are written out by us from documented behaviour. Where a family
is not append-only the conversation is refused, and the test says which and why.
"""

import json
import random

import jinja2
import pytest

from clawgym_jax.chat.conversation import (
    Conversation,
    NotAppendOnly,
    prompt_ids,
    render,
)
from clawgym_jax.contracts.errors import RecordError
from tests.chat.families import FAMILIES

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": text,
            "parameters": {
                "type": "object",
                "properties": {a: {"type": "string", "description": f"<{a}> é"}},
                "required": [a],
            },
        },
    }
    for name, text, a in (("exec", "run a command", "command"), ("read", "", "path"))
]


def user(text="sum column 3 of data/f3.csv"):
  return {"role": "user", "content": text}


def said(text, **more):
  return {"role": "assistant", "content": text, **more}


def calls(*commands, content=""):
  return said(
      content,
      tool_calls=[
          {
              "id": f"call{i:05d}",
              "type": "function",
              "function": {"name": "exec", "arguments": {"command": command}},
          }
          for i, command in enumerate(commands)
      ],
  )


def reply(text, i=0):
  return {
      "role": "tool", "content": text, "tool_call_id": f"call{i:05d}", "name": "exec"
  }  # fmt: skip


SYSTEM = {"role": "system", "content": "You are an agent.\nBe brief."}
THOUGHT = {"reasoning_content": "the user wants\n\na sum"}
TALKS = {
    "one turn": ([user()], None),
    "two turns": ([user(), said("It is 12."), user("thanks")], None),
    "system": ([SYSTEM, user("  é 日本\n\n"), said("yes"), user()], None),
    "six turns": (
        [SYSTEM]
        + [m for i in range(6) for m in (user(f"question {i}"), said(f"answer {i}"))],
        None,
    ),
    "tools": (
        [SYSTEM, user(), calls("ls -l"), reply("a\nb"), said("There are 2.")], TOOLS,
    ),
    "tools without a system turn": (
        [user(), calls("ls"), reply("a"), calls("cat a"), reply('{"x": "é"}')], TOOLS,
    ),
    "tools and a second question": (
        [user(), calls("ls"), reply("a"), said("There is a."), user("thanks")], TOOLS,
    ),
    "parallel tools": (
        [user(), calls("ls", "pwd"), reply("a"), reply("/b", 1), said("done")], TOOLS,
    ),
    "thinking": ([user(), said("12", **THOUGHT)], None),
    "thinking and a second question": (
        [user(), said("12", **THOUGHT), user("thanks")], None,
    ),
    "thinking and tools": (
        [user(), {**calls("ls"), **THOUGHT}, reply("a"), said("a", **THOUGHT)], TOOLS,
    ),
}  # fmt: skip

TURNS = "take turns"
THINKING_OFF = "is written differently|writes the assistant's turn differently"
# What a family refuses to lay out at all, and what it can't lay out step by step.
NEVER = {
    ("gemma3", "tools"): TURNS,
    ("gemma3", "tools without a system turn"): TURNS,
    ("gemma3", "tools and a second question"): TURNS,
    ("gemma3", "parallel tools"): TURNS,
    ("gemma3", "thinking and tools"): TURNS,
    ("llama3_1", "parallel tools"): "one call at a time",
}
# A generation prompt that opens a thought is not how turns without one start.
UNKNOWN_STARTS = {
    ("qwen3_thinking", talk)
    for talk, (messages, _) in TALKS.items()
    if any(m["role"] == "assistant" and not THOUGHT.keys() <= m.keys() for m in messages)
}
NOT_APPENDED = {
    # The tools, and the system text, move to the last user message.
    ("mistral_v3", "system"): "the system message differently",
    ("mistral_v3", "six turns"): "the system message differently",
    ("mistral_v3", "tools and a second question"): "user's message differently",
    # Thinking of turns before the last question is dropped.
    ("qwen3", "thinking and a second question"): "thinking out once messages of user",
}
CASES = [(family, talk) for family in FAMILIES for talk in TALKS]
KNOWN = [case for case in CASES if case not in UNKNOWN_STARTS | NEVER.keys()]


def flat(spans):
  return [i for span in spans for i in span.ids]


def with_arguments_as_text(messages):
  """As OpenAI's API sends calls."""
  result = []
  for message in messages:
    if "tool_calls" in message:
      calls = [
          {**c, "function": {**c["function"], "arguments": json.dumps(
              c["function"]["arguments"])}}
          for c in message["tool_calls"]
      ]  # fmt: skip
      message = {**message, "tool_calls": calls}
    result.append(message)
  return result


def laid_out_stepwise(family, messages, tools, **variables):
  """The ids of a conversation whose answers are what the family would write."""
  tokenizer, talk = FAMILIES[family].tokenizer, None
  held = 0
  for index, message in enumerate(messages):
    if message["role"] != "assistant":
      continue
    new = messages[held:index]
    if talk is None:
      talk = Conversation.start(tokenizer, new, tools, **variables)
    else:
      talk.extend(new)
    thinks = "reasoning_content" in message
    known = messages[: index + 1] if thinks else messages
    spans = render(tokenizer, known, tools, **variables)
    (ids,) = [s.ids for s in spans if s.trained and s.message_index == index]
    talk.append_response(ids)
    held = index + 1
  if talk is None:
    return Conversation.start(tokenizer, messages, tools, **variables).ids
  if held < len(messages):
    talk.extend(messages[held:])
  return talk.ids


@pytest.mark.parametrize(("family", "talk"), CASES)
def test_ids_are_those_of_transformers(family, talk):
  messages, tools = TALKS[talk]
  known = FAMILIES[family]
  if (family, talk) in NEVER:
    with pytest.raises(RecordError, match=NEVER[family, talk]):
      render(known.tokenizer, messages, tools)
    with pytest.raises(jinja2.TemplateError, match=NEVER[family, talk]):
      known.ids(messages, tools, asking=False)
    return
  as_text = with_arguments_as_text(messages)
  asked = prompt_ids(known.tokenizer, as_text, tools)
  assert asked == known.ids(messages, tools, asking=True)
  if (family, talk) in UNKNOWN_STARTS:
    with pytest.raises(RecordError, match="generation prompt"):
      render(known.tokenizer, as_text, tools)
    return
  spans = render(known.tokenizer, as_text, tools)
  assert flat(spans) == known.ids(messages, tools, asking=False)
  assert len(asked) > 10


@pytest.mark.parametrize(("family", "talk"), KNOWN)
def test_only_what_assistants_say_is_trained(family, talk):
  messages, tools = TALKS[talk]
  tokenizer = FAMILIES[family].tokenizer
  trained = [s for s in render(tokenizer, messages, tools) if s.trained]
  answers = [m for m in messages if m["role"] == "assistant"]
  assert [messages[s.message_index] for s in trained] == answers
  for span, message in zip(trained, answers):
    text = tokenizer.decode(span.ids)
    assert span.ids[-1] == tokenizer.eos_id
    assert tokenizer.eos_id not in span.ids[:-1]
    assert message["content"] in text
    for call in message.get("tool_calls", []):
      if family != "smollm2":  # which writes no calls
        assert call["function"]["arguments"]["command"] in text
    for other in messages:
      if other["role"] in ("user", "system"):
        assert other["content"] not in text


@pytest.mark.parametrize(("family", "talk"), KNOWN)
def test_incremental_ids_are_whole_ids(family, talk):
  messages, tools = TALKS[talk]
  if (family, talk) in NOT_APPENDED:
    with pytest.raises(NotAppendOnly, match=NOT_APPENDED[family, talk]):
      laid_out_stepwise(family, messages, tools)
    return
  ids = laid_out_stepwise(family, messages, tools)
  asking = messages[-1]["role"] != "assistant"
  whole = FAMILIES[family].ids(messages, tools, asking=asking)
  if not asking:  # what follows the end of turn belongs to the next prompt
    assert ids[-1] == FAMILIES[family].tokenizer.eos_id
    assert len(whole) - len(ids) <= 1
    whole = whole[: len(ids)]
  assert ids == whole


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("talk", TALKS)
def test_qwen3_with_thinking_switched(talk, on):
  messages, tools = TALKS[talk]
  qwen3 = FAMILIES["qwen3"]
  ids = prompt_ids(qwen3.tokenizer, messages, tools, enable_thinking=on)
  assert ids == qwen3.ids(messages, tools, True, enable_thinking=on)
  if on or all(m["role"] != "assistant" for m in messages):
    spans = render(qwen3.tokenizer, messages, tools, enable_thinking=on)
    assert flat(spans) == qwen3.ids(messages, tools, False, enable_thinking=on)
  else:  # the empty thought of the generation prompt is not in these turns
    with pytest.raises(RecordError, match="generation prompt"):
      render(qwen3.tokenizer, messages, tools, enable_thinking=on)


def test_qwen3_without_thinking_lays_out_one_answer():
  """Its empty thought is the prompt's, so it is not trained."""
  qwen3 = FAMILIES["qwen3"]
  messages = [SYSTEM, user(), said("It is 12.")]
  head, body, tail = render(qwen3.tokenizer, messages, None, enable_thinking=False)
  assert flat([head, body, tail]) == qwen3.ids(messages, None, False, enable_thinking=False)
  assert qwen3.tokenizer.decode(head.ids).endswith("<think>\n\n</think>\n\n")
  assert body.trained and qwen3.tokenizer.decode(body.ids) == "It is 12.<|im_end|>"


def test_qwen3_without_thinking_can_not_go_on():
  """Its generation prompt answers an empty thought; later renderings lack it."""
  tokenizer = FAMILIES["qwen3"].tokenizer
  talk = Conversation.start(tokenizer, [user()], TOOLS, enable_thinking=False)
  talk.append_response([*tokenizer.encode("12"), tokenizer.eos_id])
  with pytest.raises(RecordError, match="assistant's turn differently.*</think>"):
    talk.extend([reply("a")])


def test_a_prompt_that_opens_the_thought_goes_on():
  family = FAMILIES["qwen3_thinking"]
  messages = [user(), {**calls("ls"), **THOUGHT}, reply("a")]
  talk = Conversation.start(family.tokenizer, messages[:1], TOOLS)
  body = 'the user wants\n\na sum\n</think>\n\n\n<tool_call>\n{"name": "exec",'
  body += ' "arguments": {"command": "ls"}}\n</tool_call><|im_end|>'
  talk.append_response(family.peer.encode(body, add_special_tokens=False))
  talk.extend(messages[2:])
  assert talk.ids == family.ids(messages, TOOLS, asking=True)


def test_an_empty_thought_that_later_renderings_drop_is_refused():
  tokenizer = FAMILIES["qwen3"].tokenizer
  talk = Conversation.start(tokenizer, [user()], TOOLS)
  talk.append_response(
      [*tokenizer.encode("<think>\n\n</think>\n\n12"), tokenizer.eos_id]
  )
  with pytest.raises(RecordError, match="thinking out once messages of tool"):
    talk.extend([reply("a")])


def test_ends_of_turn_come_from_the_template():
  ends = {
      name: FAMILIES[name].tokenizer.token(FAMILIES[name].tokenizer.eos_id)
      for name in ("qwen3", "llama3_1", "mistral_v3", "gemma3")
  }
  assert ends == {
      "qwen3": "<|im_end|>",
      "llama3_1": "<|eot_id|>",
      "mistral_v3": "</s>",
      "gemma3": "<end_of_turn>",
  }
  gemma = FAMILIES["gemma3"].tokenizer
  assert gemma.eos_ids == [gemma.token_id("<end_of_turn>"), gemma.token_id("<eos>")]
  assert gemma.turn_ends == gemma.eos_ids[:1]


def random_talk(generator):
  """A conversation of any shape: turns, calls, thoughts, with or without tools."""
  messages = [SYSTEM] if generator.random() < 0.5 else []
  tools = TOOLS if generator.random() < 0.6 else None
  for turn in range(generator.randrange(1, 4)):
    messages.append(user(generator.choice(["go", "  é\n", "sum column", f"ask {turn}"])))
    for _ in range(generator.randrange(3) if tools else 0):
      count = generator.choice([1, 1, 2])
      call = calls(*["ls -l", "pwd"][:count], content=generator.choice(["", "look"]))
      thought = THOUGHT if generator.random() < 0.3 else {}
      messages += [{**call, **thought}, *(reply(f"r{i}", i) for i in range(count))]
    thought = THOUGHT if generator.random() < 0.3 else {}
    messages.append(said(generator.choice(["done", "it is 12", "\nx"]), **thought))
  return messages[:-1] if generator.random() < 0.5 else messages, tools


@pytest.mark.parametrize("family", FAMILIES)
def test_a_conversation_is_continued_exactly_or_refused(family):
  """Random talks; where the next turn is not refused, ids are the whole ids."""
  known, generator = FAMILIES[family], random.Random(3)
  exact = refused = 0
  for _ in range(60):
    messages, tools = random_talk(generator)
    talk, held = None, 0
    at = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    for index, following in zip(at, [*at[1:], len(messages)]):
      new = messages[held:index]
      try:
        if talk is None:
          talk = Conversation.start(known.tokenizer, new, tools)
        else:
          talk.extend(new)
        thinks = "reasoning_content" in messages[index]
        shown = messages[: index + 1 if thinks else following]
        spans = render(known.tokenizer, shown, tools)
      except RecordError:
        refused += 1
        break
      whole = known.ids(messages[:index], tools, asking=True)
      merged = any(m.get("content") == "\nx" for m in messages[:index])
      if not merged:  # its first character joins the header's last one there
        assert talk.ids == whole
        exact += 1
      talk.append_response(
          [s.ids for s in spans if s.trained and s.message_index == index][0]
      )
      held = index + 1
  assert exact > 20 and (refused > 0 or family in ("qwen2_5", "hermes", "smollm2",
                                                   "compact", "qwen3_coder"))  # fmt: skip


@pytest.mark.parametrize("talk", TALKS)
def test_masks_are_those_of_generation_tags(talk):
  """Hermes' template here has the tags that transformers makes masks from."""
  family = FAMILIES["hermes"]
  messages, tools = TALKS[talk]
  theirs = family.peer.apply_chat_template(
      messages, tools, return_dict=True, return_assistant_tokens_mask=True
  )
  spans = render(family.tokenizer, messages, tools)
  ours = [int(span.trained) for span in spans for _ in span.ids]
  assert ours == theirs["assistant_masks"]
