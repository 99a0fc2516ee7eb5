"""What a template writes for a message reads as that message, in every family.

The templates here are the assistant's part only, written out from the
documented layout of each family.
"""

import json
from importlib import resources

import jinja2.sandbox
import pytest

from clawgym_jax.chat.calls import detect_format
from clawgym_jax.chat.response import parse_response

_HERMES = """
{%- for c in m.tool_calls or [] -%}
{%- if m.content or not loop.first -%}{{- "\\n" -}}{%- endif -%}
{{- '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' -}}
{{- c.function.arguments | tojson -}}{{- "}\\n</tool_call>" -}}
{%- endfor -%}
"""

BODIES = {
    "qwen2.5": "{{- m.content or '' -}}" + _HERMES,
    "qwen3": "{{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' -}}"
    "{{- m.content or '' -}}" + _HERMES,
    "smollm2": """
{{- m.content or '' -}}
{%- if m.tool_calls -%}{{- "<tool_call>[" -}}
{%- for c in m.tool_calls -%}
{{- '{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson + '}' -}}
{{- ", " if not loop.last else "" -}}
{%- endfor -%}{{- "]</tool_call>" -}}{%- endif -%}
""",
    "qwen3_coder": """
{{- (m.content + '\\n') if m.content and m.tool_calls else m.content or '' -}}
{%- for c in m.tool_calls or [] -%}
{{- '\\n' if not loop.first else '' -}}
{{- '<tool_call>\\n<function=' + c.function.name + '>\\n' -}}
{%- for key, value in c.function.arguments.items() -%}
{{- '<parameter=' + key + '>\\n' -}}
{{- value | tojson if value is mapping or (value is sequence and value is not string) else value | string -}}
{{- '\\n</parameter>\\n' -}}
{%- endfor -%}
{{- '</function>\\n</tool_call>' -}}
{%- endfor -%}
""",
    "llama3": """
{%- if m.tool_calls -%}{%- for c in m.tool_calls -%}
{{- '<|python_tag|>' if m.content and loop.first else '' -}}
{{- '{"name": "' + c.function.name + '", "parameters": ' + c.function.arguments | tojson + '}' -}}
{{- '; ' if not loop.last else '' -}}
{%- endfor -%}{%- endif -%}
""",
    "mistral": """
{{- m.content or '' -}}
{%- if m.tool_calls -%}{{- '[TOOL_CALLS] [' -}}{%- for c in m.tool_calls -%}
{{- '{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson -}}
{{- ', "id": "' + c.id + '"}' + (', ' if not loop.last else ']') -}}
{%- endfor -%}{%- endif -%}
""",
    "mistral_args": """
{{- m.content or '' -}}
{%- for c in m.tool_calls or [] -%}
{{- '[TOOL_CALLS]' + c.function.name + '[ARGS]' + c.function.arguments | tojson -}}
{%- endfor -%}
""",
}
BODIES["llama3"] = "{{- m.content or '' -}}" + BODIES["llama3"]

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
    message("Two lines:\n\n  a < b, {c}.\n"),
    message(None, ("write", DEEP)),
    message("I write it.", ("write", TYPED)),
    message("Both.", ("write", TYPED), ("read", {"path": "é.txt"}), ("now", {})),
    message(None, ("now", {}), ("now", {})),
    message("Yes.", thought='First\n\n<tool_call>{"name": "rm", "arguments": {}}</tool_call>?'),
    message(None, ("write", DEEP), thought="Let me write."),
]


def environment():
  made = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
  made.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
  return made


def comparable(said):
  """Arguments as values, and ids gone: models don't say them in most formats."""
  calls = [
      (call["function"]["name"], json.loads(call["function"]["arguments"]))
      if isinstance(call["function"]["arguments"], str)
      else (call["function"]["name"], call["function"]["arguments"])
      for call in said.get("tool_calls", [])
  ]
  return {**said, "tool_calls": calls}


@pytest.mark.parametrize(
    ("family", "made"),
    [
        (family, made)
        for family in BODIES
        for made in MESSAGES
        if family == "qwen3" or "reasoning_content" not in made
    ],
)
def test_what_is_written_is_read(family, made):
  source = BODIES[family]
  text = environment().from_string(source).render(m=made)
  format = "llama3" if family == "llama3" else detect_format(source)
  said = parse_response(text, format, tools=TOOLS)
  assert comparable(said) == comparable(made)
  if family == "mistral":
    assert said.get("tool_calls", []) == [
        {**c, "function": {**c["function"], "arguments": json.dumps(
            c["function"]["arguments"], ensure_ascii=False)}}
        for c in made.get("tool_calls", [])
    ]  # fmt: skip


@pytest.mark.parametrize("made", MESSAGES[:6])
def test_the_compact_template_too(made):
  source = resources.files("clawgym_jax.chat").joinpath("compact.jinja").read_text()
  template = environment().from_string(source)
  user = {"role": "user", "content": "go"}
  head = template.render(messages=[user], add_generation_prompt=True)
  whole = template.render(messages=[user, made])
  text = whole.removeprefix(head).removesuffix("<|im_end|>\n")
  assert comparable(parse_response(text, detect_format(source))) == comparable(made)
