"""What a template writes for a message reads as that message, in every family.

It goes the whole way: the ids that training learns, decoded as the gateway
decodes them, with the format and the thought found as the gateway finds them.
"""

import json

import jinja2.sandbox
import pytest

from clawgym_jax.chat.calls import detect_format
from clawgym_jax.chat.conversation import render
from clawgym_jax.chat.response import opens_thought, parse_response
from tests.chat.families import FAMILIES

# Ways of writing calls that the templates beside these tests don't use.
BODIES = {
    "hermes": """
{{- m.content or '' -}}
{%- if m.tool_calls -%}{{- "<tool_call>[" -}}
{%- for c in m.tool_calls -%}
{{- '{"name": "' + c.function.name + '", "arguments": ' -}}
{{- c.function.arguments | tojson + '}' + (", " if not loop.last else "]</tool_call>") -}}
{%- endfor -%}{%- endif -%}
""",
    "llama3": """
{{- m.content or '' -}}
{%- for c in m.tool_calls or [] -%}
{{- '<|python_tag|>' if m.content and loop.first else '' -}}
{{- '{"name": "' + c.function.name + '", "parameters": ' -}}
{{- c.function.arguments | tojson + '}' + ('; ' if not loop.last else '') -}}
{%- endfor -%}
""",
    "mistral": """
{{- m.content or '' -}}
{%- for c in m.tool_calls or [] -%}
{{- '[TOOL_CALLS]' + c.function.name + '[ARGS]' + c.function.arguments | tojson -}}
{%- endfor -%}
""",
}

WRITE_CALLS = {
    "compact": "hermes",
    "hermes": "hermes",
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "qwen3_thinking": "hermes",
    "qwen3_coder": "qwen3_coder",
    "llama3_1": "llama3",
    "mistral_v3": "mistral",
}
WRITE_THOUGHTS = ("qwen3", "qwen3_thinking")

TEXT = 'a "quoted" \\ <b>é😀</b>\n\tline two\n\n { } [ ] ; \u2028 end'
DEEP = {"path": "x", "deep": {"list": [1, -2.5, None, True, {"k": TEXT}], "empty": {}}}
TYPED = {"text": TEXT, "n": 7, "x": 0.25, "yes": True, "none": None, "list": [1, {"a": "b"}]}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "write",
            "parameters": {
                "properties": {
                    "path": {"type": "string"}, "text": {"type": "string"},
                    "deep": {"type": "object"}, "n": {"type": "integer"},
                    "x": {"type": "number"}, "yes": {"type": "boolean"},
                    "none": {"type": ["integer", "null"]}, "list": {"type": "array"},
                },
            },
        },
    }
]  # fmt: skip


def message(content, *calls, thought=None):
  made = {"role": "assistant", "content": content}
  if thought:
    made["reasoning_content"] = thought
  if calls:
    made["tool_calls"] = [
        {
            "id": f"id000000{number}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for number, (name, arguments) in enumerate(calls)
    ]
  return made


MESSAGES = [
    message("Done."),
    message("Two lines:\n\n  a < b, {c}."),
    message(None, ("write", DEEP)),
    message("I write it.", ("write", TYPED)),
    message("Both.", ("write", TYPED), ("read", {"path": "é.txt"}), ("now", {})),
    message(None, ("now", {}), ("now", {})),
    message("Yes.", thought='First\n\n<tool_call>{"name": "rm", "arguments": {}}</tool_call>?'),
    message(None, ("write", DEEP), thought="Let me write."),
]


def comparable(said):
  """Arguments as values, and ids gone: models don't say them in most formats."""
  calls = [
      (call["function"]["name"], json.loads(call["function"]["arguments"]))
      if isinstance(call["function"]["arguments"], str)
      else (call["function"]["name"], call["function"]["arguments"])
      for call in said.get("tool_calls", [])
  ]
  return {**said, "tool_calls": calls}


def fits(family, made):
  """Whether the family's template can write such a message."""
  calls = made.get("tool_calls", [])
  thinks = "reasoning_content" in made
  if thinks and family not in WRITE_THOUGHTS or not thinks and family == "qwen3_thinking":
    return False
  if calls and made["content"] and family in ("llama3_1", "mistral_v3"):
    return False  # it writes calls or text
  return family != "llama3_1" or len(calls) < 2


@pytest.mark.parametrize(
    ("family", "made"),
    [(f, m) for f in WRITE_CALLS for m in MESSAGES if fits(f, m)],
)
def test_what_is_trained_is_read(family, made):
  tokenizer = FAMILIES[family].tokenizer
  format = detect_format(tokenizer.template.literals)
  assert format == WRITE_CALLS[family]
  user = {"role": "user", "content": "go"}
  spans = render(tokenizer, [user, made], TOOLS)
  (said,) = [span.ids for span in spans if span.trained]
  asked = next(span.ids for span in spans if not span.trained)
  assert said[-1] in tokenizer.eos_ids
  read = parse_response(
      tokenizer.decode(said[:-1]),
      format,
      tools=TOOLS,
      in_thought=opens_thought(tokenizer.decode(asked[-16:])),
  )
  if family == "mistral_v3" and read["content"]:
    read["content"] = read["content"].removeprefix(" ")  # the template's own
  assert comparable(read) == comparable(made)
  if family == "mistral_v3":  # tool results refer to the ids that the model said
    ids = [call["id"] for call in read.get("tool_calls", [])]
    assert ids == [call["id"] for call in made.get("tool_calls", [])]


@pytest.mark.parametrize(
    ("format", "made"),
    [(f, m) for f in BODIES for m in MESSAGES if "reasoning_content" not in m],
)
def test_what_is_written_otherwise_is_read(format, made):
  environment = jinja2.sandbox.ImmutableSandboxedEnvironment()
  environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
  text = environment.from_string(BODIES[format]).render(m=made)
  assert comparable(parse_response(text, format)) == comparable(made)


def test_a_template_without_calls_gives_hermes():
  for family in set(FAMILIES) - set(WRITE_CALLS):
    assert detect_format(FAMILIES[family].template.literals) == "hermes"
