"""Reading calls from what a model said: all of them, or none and why not."""

import json
import random
import re
import time
from pathlib import Path

import pytest

from clawgym_jax.chat import vocabulary
from clawgym_jax.chat.response import (
    StreamParser,
    detect_format,
    join_deltas,
    opens_thought,
    parse_response,
)
from clawgym_jax.contracts.errors import UserError

CALL = '<tool_call>{"name": "exec", "arguments": {"command": "ls \\"a\\""}}</tool_call>'

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "write",
            "parameters": {
                "type": "object",
                "$defs": {"edit": {"type": "object"}},
                "properties": {
                    "path": {"type": "string"},
                    "lines": {"type": "integer"},
                    "scale": {"type": "number"},
                    "force": {"type": "boolean"},
                    "edits": {"type": "array"},
                    "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "note": {"type": ["string", "null"]},
                    "edit": {"$ref": "#/$defs/edit"},
                },
            },
        },
    }
]


def names(message):
  return [c["function"]["name"] for c in message.get("tool_calls", [])]


def arguments(message):
  return [json.loads(c["function"]["arguments"]) for c in message["tool_calls"]]


def xml(name="write", **parameters):
  inner = "".join(
      f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items()
  )
  return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


# One clear call of `exec` with {"command": "ls"} in each way of writing it.
CLEAR = [
    ("hermes", '<tool_call>{"name": "exec", "arguments": {"command": "ls"}}</tool_call>'),
    ("hermes", '<tool_call>[{"arguments": {"command": "ls"}, "name": "exec"}]</tool_call>'),
    ("qwen3_coder", xml("exec", command="ls")),
    ("llama3", '<|python_tag|>{"name": "exec", "parameters": {"command": "ls"}}'),
    ("llama3", '{"name": "exec", "parameters": {"command": "ls"}}'),
    ("llama3", '{"type": "function", "name": "exec", "arguments": {"command": "ls"}} ;'),
    ("mistral", '[TOOL_CALLS] [{"name": "exec", "arguments": {"command": "ls"}}]'),
    ("mistral", '[TOOL_CALLS]exec[ARGS]{"command": "ls"}'),
    ("mistral", '[TOOL_CALLS]exec[CALL_ID]a1b2c3d4e[ARGS]{"command": "ls"}'),
]


def test_every_call_is_kept_in_order():
  message = parse_response("On it.\n" + CALL + "\n" + CALL.replace("exec", "read"))
  assert names(message) == ["exec", "read"]
  assert message["content"] == "On it."
  assert arguments(message)[0] == {"command": 'ls "a"'}
  assert len({c["id"] for c in message["tool_calls"]}) == 2
  assert all(c["id"].isalnum() for c in message["tool_calls"])
  assert "parse_error" not in message


@pytest.mark.parametrize(("format", "text"), CLEAR)
def test_every_format_reads_its_call(format, text):
  message = parse_response(text, format)
  assert names(message) == ["exec"] and arguments(message) == [{"command": "ls"}]
  assert message["content"] is None
  for other in ("hermes", "qwen3_coder", "llama3", "mistral"):
    if "tool_call" not in text and other != format:
      assert parse_response(text, other) == {"role": "assistant", "content": text}


@pytest.mark.parametrize(("format", "text"), CLEAR)
def test_a_call_cut_anywhere_is_not_made(format, text):
  text = text.rstrip(" ;")  # what closes nothing may be missing
  for end in range(len(text)):
    for reason in ("length", "stop"):
      message = parse_response(text[:end], format, finish_reason=reason)
      assert names(message) == [] and message["content"] == text[:end]


def test_parallel_calls_of_every_format():
  two = {
      "hermes": CALL + CALL,
      "qwen3_coder": xml("exec", command="a") + "\n" + xml("exec"),
      "mistral": '[TOOL_CALLS]exec[ARGS]{"a": 1}[TOOL_CALLS]exec[ARGS]{}',
  }
  for format, text in two.items():
    message = parse_response("Now. " + text, format)
    assert names(message) == ["exec", "exec"] and message["content"] == "Now."
  one = '{"name": "exec", "parameters": {"command": "ls"}}'
  for between in ("; ", ";", "\n", " "):
    assert len(names(parse_response(one + between + one, "llama3"))) == 2
  marked = f"Now. <|python_tag|>{one}; {one}<|python_tag|>{one}"
  assert len(names(parse_response(marked, "llama3"))) == 3
  listed = '[TOOL_CALLS][{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}]'
  assert names(parse_response(listed, "mistral")) == ["a", "b"]


@pytest.mark.parametrize(
    ("format", "text", "why"),
    [
        ("hermes", '<tool_call>{"name": "exec"</tool_call>', "delimiter"),
        ("hermes", CALL[:-20], "Unterminated string"),
        ("hermes", '<tool_call>{"name": "exec", "arguments": "ls"}</tool_call>', "object"),
        ("hermes", '<tool_call>["exec"]</tool_call>', "object"),
        ("hermes", "<tool_call>[]</tool_call>", "empty"),
        ("hermes", CALL + "<tool_call>", "end of the message"),
        ("hermes", "<tool_call>" + CALL, "Expecting value"),
        ("hermes", CALL.replace('"}}', '"}} ls'), "must end with </tool_call>"),
        ("hermes", CALL.replace("arguments", "parameters"), "'parameters'"),
        ("hermes", CALL.replace('"exec"', "3"), "name of a tool"),
        ("hermes", CALL.replace('"exec"', '""'), "name of a tool"),
        ("hermes", CALL.replace('{"name"', '{"name": "rm", "name"'), "'name' twice"),
        ("hermes", CALL.replace('{"c', '{"command": "rm", "c'), "'command' twice"),
        ("hermes", CALL.replace('{"c', '{"n": NaN, "c'), "NaN"),
        ("hermes", CALL.replace('{"c', '{"n": 1e999, "c'), "not finite"),
        ("hermes", CALL.replace("ls", "\\ud800"), "half of a character"),
        ("hermes", CALL.replace('{"c', '{"n": ' + "9" * 5000 + ', "c'), "digits"),
        ("hermes", CALL.replace('{"c', '{"n": ' + "[" * 99 + "]" * 99 + ', "c'), "deep"),
        ("hermes", "<tool_call>" + "[" * 200_000, "deep"),
        ("hermes", CALL + "</think>", "</think>"),
        ("hermes", CALL[11:], "<tool_call> must begin it"),
        ("hermes", CALL + CALL[11:], "<tool_call> must begin it"),
        ("qwen3_coder", xml(path="a")[11:] + xml(path="b"), "<tool_call> must begin it"),
        ("hermes", f"So <think>maybe {CALL}", "never closed"),
        ("qwen3_coder", CALL, "<function=NAME> must follow"),
        ("qwen3_coder", xml(path="a").replace("</function>", ""), "needs </function>"),
        ("qwen3_coder", xml(path="a").replace("</parameter>", ""), "not closed"),
        ("qwen3_coder", xml(path="<parameter=lines>1"), "<parameter= stands"),
        ("qwen3_coder", xml(path="x" + xml(path="y")), "<tool_call> stands"),
        ("qwen3_coder", xml(path="a") + xml(path="b</parameter>c"), "needs </function>"),
        ("qwen3_coder", xml(lines="many"), "lines must be integer"),
        ("qwen3_coder", xml(lines="1.5"), "lines must be integer: number was given"),
        ("qwen3_coder", xml(lines=""), "lines must be integer"),
        ("qwen3_coder", xml(edits='[{"a": 1}'), "edits must be array: bad JSON,"),
        ("qwen3_coder", xml(edits='{"a": 1}'), "edits must be array: object"),
        ("qwen3_coder", xml(edits="[1] [2]"), "text after its end"),
        ("qwen3_coder", xml(scale="1e999"), "not finite"),
        ("llama3", '{"name": "exec", "parameters": {"command": "ls"}', "delimiter"),
        ("llama3", '{"name": "exec", "parameters": {}} and so on', "'and so on'"),
        ("llama3", '{"name": "exec", "parameters": {}, "arguments": {}}', "not both"),
        ("llama3", '{"name": "exec", "parameters": {}}; {"a": 1}', "'a'"),
        ("llama3", '<|python_tag|>brave_search.call(query="x")', "brave_search"),
        ("llama3", 'x<|python_tag|>{"name": "a", "parameters": {}} no', "'no'"),
        ("mistral", "[TOOL_CALLS]", "the end of the message"),
        ("mistral", "[TOOL_CALLS][]", "empty"),
        ("mistral", "[TOOL_CALLS]exec", "list of calls"),
        ("mistral", '[TOOL_CALLS]exec[ARGS]["a"]', "list of calls"),
        ("mistral", '[TOOL_CALLS][{"name": "a", "arguments": {}}] ok', "'ok'"),
    ],
)
def test_what_is_unclear_stays_text_and_the_model_is_told(format, text, why):
  if format != "llama3":  # whose calls without a mark begin a message
    text = "Hm.\n" + text
  message = parse_response(text, format, tools=TOOLS)
  assert names(message) == [] and message["content"] == text
  assert why in message["parse_error"]
  assert "Nothing was executed." in message["parse_error"]
  assert len(message["parse_error"]) < 600
  json.dumps(message, ensure_ascii=False).encode()


def test_plain_text_stays_plain():
  for format in ("hermes", "qwen3_coder", "llama3", "mistral"):
    for text in (
        "", " ", "plain\n", "\n two\n\nlines ", "a < b <tool", "[TOOL", "2 </think> 3",
        "x <think> y", "x <think>y</think> z", "<thinking>", '{"a": 1}', '{"name": "Bob"}',
        '{"name": "Bob", "age": 3', "{not json}", "[1, 2]",
    ):  # fmt: skip
      assert parse_response(text, format) == {"role": "assistant", "content": text}


def test_a_call_drafted_in_thought_is_not_made():
  message = parse_response(f"<think>maybe {CALL}</think>\n" + CALL)
  assert names(message) == ["exec"] and "maybe" in message["reasoning_content"]
  assert names(parse_response(f"<think>maybe {CALL}</think>No.")) == []
  assert names(parse_response(f"<think>maybe {CALL}")) == []
  later = parse_response(f"<think>a</think>So <think>{CALL}</think> {CALL}")
  assert len(names(later)) == 1 and later["reasoning_content"] == "a"
  between = parse_response(f"{CALL}<think>or {CALL}?</think>{CALL}")
  assert len(names(between)) == 2


@pytest.mark.parametrize(("format", "text"), CLEAR)
def test_thought_and_call_in_every_format(format, text):
  said = parse_response(f"<think>\nor {text}\n</think>\n\n{text}", format)
  assert names(said) == ["exec"] and said["reasoning_content"] == f"or {text}"
  assert names(parse_response(f"<think>\n{text}\n</think>\n\nNo.", format)) == []
  opened = parse_response(f"or {text}\n</think>\n{text}", format, in_thought=True)
  assert names(opened) == ["exec"] and opened["reasoning_content"] == f"or {text}"
  assert names(parse_response(f"or {text}", format, in_thought=True)) == []


def test_thought_that_never_ends():
  cut = parse_response("<think>\nwell,", finish_reason="length")
  assert cut == {"role": "assistant", "content": "", "reasoning_content": "well,"}
  assert "</think>" in parse_response("<think>\nwell,")["parse_error"]
  assert parse_response("<think>\n\n</think>\n\nHi") == {"role": "assistant", "content": "Hi"}
  assert opens_thought("<|im_start|>assistant\n<think>\n")
  assert not opens_thought("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_whole_calls_of_a_cut_message_are_made():
  assert names(parse_response(CALL, finish_reason="length")) == ["exec"]
  assert names(parse_response(CALL + "\nAnd n", finish_reason="length")) == ["exec"]
  for rest in ("<tool", "<tool_call>", CALL[:-1]):
    message = parse_response(CALL + rest, finish_reason="length")
    assert names(message) == [] and message["content"] == CALL + rest
    assert "cut at its length limit" in message["parse_error"]


def test_tags_inside_strings_are_strings():
  text = "</tool_call><tool_call></think><think>"
  said = json.dumps({"name": "write", "arguments": {"content": text}})
  message = parse_response(f"<tool_call>{said}</tool_call>{CALL}")
  assert names(message) == ["write", "exec"]
  assert arguments(message)[0] == {"content": text}
  assert arguments(parse_response(f"[TOOL_CALLS][{said}]", "mistral")) == [{"content": text}]


def test_parameters_are_typed_by_the_schema():
  for key, text, value in (
      ("path", "3", "3"), ("path", "\n a\n\n", "\n a\n\n"), ("path", "true", "true"),
      ("path", '{"a": 1}', '{"a": 1}'), ("path", "<think>x</think>", "<think>x</think>"),
      ("lines", "3", 3), ("lines", " -3.0 ", -3), ("scale", "2.5", 2.5), ("scale", "2", 2),
      ("force", "true", True), ("force", "False", False), ("edits", '[{"a": "é"}]', [{"a": "é"}]),
      ("limit", "None", None), ("limit", "7", 7), ("note", "null", None), ("note", "7", "7"),
      ("edit", '{"a": 1}', {"a": 1}), ("unknown", "7", "7"),
  ):  # fmt: skip
    message = parse_response(xml(**{key: text}), "qwen3_coder", tools=TOOLS)
    (said,) = arguments(message)
    assert said == {key: value} and type(said[key]) is type(value), (key, text)
  assert arguments(parse_response(xml(lines="3"), "qwen3_coder")) == [{"lines": "3"}]
  inline = "<tool_call><function=write><parameter=path>a</parameter></function></tool_call>"
  assert arguments(parse_response(inline, "qwen3_coder")) == [{"path": "a"}]


def test_a_bad_schema_types_nothing():
  for parameters in (None, [], {"properties": []}, {"properties": {"a": {"anyOf": 3}}},
                     {"properties": {"a": {"$ref": "#/properties/a"}}}):  # fmt: skip
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    message = parse_response(xml("f", a="1"), "qwen3_coder", tools=tools)
    assert arguments(message) == [{"a": "1"}]


def test_json_is_a_call_only_where_tools_are_offered():
  text = '{"name": "exec", "parameters": {}}'
  assert names(parse_response(text, "llama3", tools=TOOLS)) == ["exec"]
  assert parse_response(text, "llama3", tools=[]) == {"role": "assistant", "content": text}
  assert names(parse_response(f"As asked: {text}", "llama3")) == []


def test_mistral_ids_are_what_its_template_takes():
  said = '{"name": "a", "arguments": {}, "id": "%s"}'
  text = f"[TOOL_CALLS][{said}, {said}, {said}]" % ("abcDEF123", "abcDEF123", "no")
  ids = [call["id"] for call in parse_response(text, "mistral")["tool_calls"]]
  assert ids[0] == "abcDEF123" and len(set(ids)) == 3
  assert all(len(i) == 9 and i.isalnum() for i in ids)


def test_formats_by_what_a_template_writes():
  assert detect_format("{{ '<tool_call>' }} <function=x> <parameter=y>") == "qwen3_coder"
  assert detect_format("{{ '<|im_start|>' }}{{ '<tool_call>' }}") == "hermes"
  assert detect_format("{{ '<|start_header_id|>' }}{{ '<tool_call>' }}") == "hermes"
  assert detect_format("{{ '<|start_header_id|>' }}") == "llama3"
  assert detect_format("[AVAILABLE_TOOLS] [TOOL_CALLS]") == "mistral"
  assert detect_format("<start_of_turn>") == "hermes"
  with pytest.raises(UserError, match="known: hermes, qwen3_coder"):
    parse_response("x", "xml")


def without_ids(message):
  calls = [{**c, "id": ""} for c in message.get("tool_calls", [])]
  return {**message, "tool_calls": calls} if calls else message


def test_however_it_is_cut_the_deltas_sum_to_the_message():
  rng = random.Random(0)
  parts = {
      "hermes": [CALL, "<tool_call>", "</tool_call>", '{"name"'],
      "qwen3_coder": [xml(path="a"), xml(lines="x"), "<tool_call>", "<function=f>"],
      "llama3": [
          '{"name": "a", "parameters": {"b": [1]}}', "<|python_tag|>", ";", "{", "}",
          '<|python_tag|>{"name": "a", "parameters": {}}',
      ],
      "mistral": ["[TOOL_CALLS]", '[{"name": "a", "arguments": {}}]', "a[ARGS]{}",
                  '[TOOL_CALLS]a[ARGS]{"b": 1}'],
  }  # fmt: skip
  common = ["<think>", "</think>", "\n", "\n\n", " ", "word", "<", "[", "<tool", "é", "Hi. "]
  seen = {"tool_calls": 0, "parse_error": 0, "reasoning_content": 0}
  for case in range(4000):
    format = rng.choice(list(parts))
    pieces = rng.choices(common + parts[format] * 2, k=rng.randrange(9))
    text = "".join(pieces)
    settings = {"in_thought": rng.random() < 0.2, "tools": rng.choice([None, TOOLS, []])}
    reason = rng.choice(["stop", "length"])
    whole = parse_response(text, format, finish_reason=reason, **settings)
    parser = StreamParser(format, **settings)
    deltas, at = [], 0
    longest = rng.choice([1, 3, 20])
    while at < len(text):
      step = rng.randrange(longest + 1)  # empty pieces too
      deltas += parser.feed(text[at : at + step])
      at += step
    assert all("tool_calls" not in delta for delta in deltas)
    deltas += parser.finish(reason)
    assert all(value for delta in deltas for value in delta.values())
    assert without_ids(join_deltas(deltas)) == without_ids(whole), (case, format, text)
    for name in seen:
      seen[name] += name in whole
    # Nothing is lost: without thought and calls the content is what was said.
    if "tool_calls" not in whole and "think>" not in text and not settings["in_thought"]:
      assert whole["content"] == text, (case, format, text)
  assert min(seen.values()) > 300, seen


def test_words_and_thought_are_given_at_once():
  parser = StreamParser()
  assert parser.feed("<think>Let me") == [{"reasoning_content": "Let me"}]
  assert parser.feed(" see.\n</thi") == [{"reasoning_content": " see."}]
  assert parser.feed("nk>\n\nI look") == [{"content": "I look"}]
  assert parser.feed(" <b>now</b>") == [{"content": " <b>now</b>"}]
  assert parser.feed(".\n\n<tool_") == [{"content": "."}]
  assert parser.feed("call>" + CALL[11:]) == []
  (delta,) = parser.finish()
  (call,) = delta["tool_calls"]
  assert (call["index"], call["function"]["name"]) == (0, "exec")


def test_time_is_linear_in_the_text():
  def seconds(text, format, step):
    started = time.process_time()
    parser = StreamParser(format)
    for at in range(0, len(text), step):
      parser.feed(text[at : at + step])
    parser.finish("length")
    return time.process_time() - started

  size = 1_000_000
  body = json.dumps({"name": "w", "arguments": {"t": "x" * size}})
  for text, format, step in (
      (f"<tool_call>{body}</tool_call>", "hermes", 4),
      ("word " * (size // 5), "hermes", 16),
      ("\n" * size, "hermes", 16),
      ("<think>" + "\n" * size, "hermes", 16),
      ("<" * size, "qwen3_coder", 16),
      ("x <think>" * (size // 9), "hermes", size),
      ("<think></think>" * (size // 15), "mistral", size),
      (xml(path="</ <" * (size // 4)), "qwen3_coder", size),
      ("<tool_call><function=f>" + "<parameter=a>" * (size // 13), "qwen3_coder", size),
      ("{" * size, "llama3", size),
      ('{"name": "a", "parameters": {}};' * (size // 32), "llama3", size),
      ("[TOOL_CALLS]a" * (size // 13), "mistral", size),
      ('<tool_call>{"name": "a", "arguments": {' + '"a": 1, ' * (size // 8), "hermes", size),
  ):
    assert seconds(text, format, step) < 5.0, (text[:40], format)


def test_the_guide_runs(tmp_path, monkeypatch):
  vocabulary.train(["You tidy files."], 300).save(tmp_path / "models" / "base")
  monkeypatch.chdir(tmp_path)
  guide = (Path(__file__).parents[2] / "docs" / "chat.md").read_text()
  blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
  assert blocks
  names = {}
  for block in blocks:
    exec(block, names)
