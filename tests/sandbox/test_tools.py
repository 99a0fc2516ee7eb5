"""The Claw tools: their results, and that nothing a model writes raises."""

from __future__ import annotations

import asyncio
import hashlib
import json

from sandbox import tools
from sandbox.backends import open_sandbox
from sandbox.tools.results import RESULT_CHARS, shorten

COMPACT_SHA256 = "dbe514acaa6a9b9cc90e859efc0efc02fdc56daaf20a4dbf9d683b6f2290eb28"


def results(calls, files=None, **settings):
  async def whole():
    async with open_sandbox() as sandbox:
      await sandbox.start(files or {})
      return [
          await tools.execute(sandbox, name, args, **settings) for name, args in calls
      ]

  return asyncio.run(whole())


def test_lines_end_where_sed_ends_them():
  numbered = "a\x0cb\u2028c\r\nd"
  assert results(
      [
          ("read", {"path": "f", "offset": 2}),
          ("exec", {"command": "sed -n 2p f"}),
          ("read", {"path": "f", "limit": 1}),
      ],
      {"f": numbered.encode()},
  ) == ["d", "d", "a\x0cb\u2028c\r\n"]


def test_the_four_tools():
  assert results([
      ("write", {"path": "notes/a.txt", "content": "é\nb\nc\n"}),
      ("read", {"path": "notes/a.txt"}),
      ("read", {"path": "/workspace/notes/a.txt", "offset": 2, "limit": 1}),
      ("edit", {"path": "notes/a.txt", "edits": [
          {"oldText": "b", "newText": "B"}, {"oldText": "c\n", "newText": ""}]}),
      ("exec", {"command": "cat notes/a.txt"}),
      ("exec", {"command": "true"}),
      ("exec", {"command": "echo x; exit 4"}),
      ("exec", {"command": "sleep 9", "timeout": 0.2}),
      ("read", '{"file_path": "notes/a.txt"}'),
  ]) == [
      "Wrote 7 bytes to notes/a.txt",
      "é\nb\nc\n",
      "b\n",
      "Edited notes/a.txt: 2 replacements",
      "é\nB",
      "(no output)",
      "x\n\n(Command exited with code 4)",
      "(no output)\n\n(Command timed out after 0.2 seconds)",
      "é\nB\n",
  ]  # fmt: skip


def test_what_goes_wrong_is_text():
  bad = [
      ("fly", {}),
      ("read", {}),
      ("read", "not json"),
      ("read", "[1]"),
      ("read", {"path": 3}),
      ("read", {"path": "nowhere"}),
      ("read", {"path": "."}),
      ("read", {"path": "a\0b"}),
      ("read", {"path": "\ud800"}),
      ("read", {"path": "a", "limit": "x"}),
      ("read", {"path": "a", "limit": float("inf")}),
      ("write", {"path": "a"}),
      ("write", {"path": "/usr/x", "content": ""}),
      ("write", {"path": "", "content": ""}),
      ("edit", {"path": "a", "edits": "x"}),
      ("edit", {"path": "a", "edits": [3]}),
      ("edit", {"path": "a", "edits": [{"oldText": "", "newText": "x"}]}),
      ("edit", {"path": "a", "edits": [{"oldText": "z", "newText": "x"}]}),
      ("edit", {"path": "a", "edits": [{"oldText": "t", "newText": "x"}]}),
      ("edit", {"path": "a", "edits": [
          {"oldText": "tw", "newText": "x"}, {"oldText": "wo", "newText": "x"}]}),
      ("exec", {"command": None}),
  ]  # fmt: skip
  for case, result in zip(bad, results(bad, {"a": b"one\ntwo\nto\n"})):
    assert result.startswith("Error: "), (case, result)
  odd = [
      ("exec", {"command": "echo \ud800 | wc -c"}),
      ("exec", {"command": "e\0cho fine"}),
      ("write", {"path": "b", "content": "\ud800"}),
  ]
  assert results(odd)[1:] == ["fine", "Wrote 1 bytes to b"]


def test_bytes_that_are_no_text_survive_an_edit():
  edit = {"path": "a", "edits": [{"oldText": "x", "newText": "y"}]}
  assert results(
      [("edit", edit), ("exec", {"command": "od -An -tx1 a"})], {"a": b"\xffx"}
  ) == ["Edited a: 1 replacement", " ff 79"]


def test_results_are_short():
  (result,) = results([("exec", {"command": "seq 100000"})])
  assert result.startswith("1\n2\n") and result.endswith("99999\n100000")
  assert len(result) < RESULT_CHARS + 100
  assert shorten("x" * RESULT_CHARS) == "x" * RESULT_CHARS


def test_compact_schemas_offer_the_same_tools_in_few_words():
  full, compact = tools.schemas(), tools.compact_schemas()
  assert [t["function"]["name"] for t in full] == [
      t["function"]["name"] for t in compact
  ]
  for long, short in zip(full, compact):
    parameters = short["function"]["parameters"]
    assert parameters["required"] == long["function"]["parameters"]["required"]
    assert parameters["properties"].keys() == set(parameters["required"])
  assert len(json.dumps(compact)) < 0.7 * len(json.dumps(full))


def test_long_files_are_read_by_pages():
  files = {
      "many": b"".join(b"%d\n" % i for i in range(1, 5001)),
      "wide": b"\n".join([b"x" * 30_000] * 3),
      "huge": b"y" * (1 << 20) + b"\nend\n",
      "p.png": b"\x89PNG\r\n\x1a\n\0\0",
  }
  first, second, last, none, wide, huge, picture = results(
      [
          ("read", {"path": "many"}),
          ("read", {"path": "many", "offset": 2001, "limit": 3}),
          ("read", {"path": "many", "offset": 4001}),
          ("read", {"path": "many", "offset": 5001}),
          ("read", {"path": "wide"}),
          ("read", {"path": "huge"}),
          ("read", {"path": "p.png"}),
      ],
      files,
  )
  assert first.startswith("1\n2\n") and "\n2000\n[… more" in first
  assert first.endswith("read on with offset=2001 …]") and len(first) < 4100
  assert second == "2001\n2002\n2003\n"
  assert last.endswith("\n5000\n") and none == "(no such lines)"
  assert wide.endswith("[… more lines follow: read on with offset=2 …]")
  assert huge.endswith("[… only the first 1 MiB can be read: use exec …]")
  assert picture == "(a PNG image: tools give text only)"


def test_a_file_that_can_not_be_read_whole_is_not_edited():
  edit = {"path": "a", "edits": [{"oldText": "one", "newText": "1"}]}
  said, size = results(
      [("edit", edit), ("exec", {"command": "stat -c %s a"})],
      {"a": b"one" + b"x" * (2 << 20)},
  )
  assert said == "Error: a is larger than 1 MiB; change it with exec"
  assert size == str(3 + (2 << 20))


def test_exec_has_a_folder_and_variables():
  bad = [
      {"command": "true", "env": {name: "x"}}
      for name in ("PATH", "Path", "LD_PRELOAD", "DYLD_X", "a b", "", "A=B", "1A")
  ]
  bad += [
      {"command": "true", "env": {"A": 1}},
      {"command": "true", "env": ["A"]},
      {"command": "true", "workdir": 3},
      {"command": "true", "pty": "yes"},
      {"command": "true", "host": "moon"},
  ]
  shown = [
      ("exec", {"command": "pwd; echo $A$B", "workdir": "d e",
                "env": {"A": "it's", "B": " $HOME\n日"}}),
      ("exec", {"command": "pwd", "workdir": "-x"}),
      ("exec", {"command": "echo $#; exit 3", "env": {}, "host": "auto", "ask": "off"}),
      ("exec", {"command": "true", "timeout": 10**400}),
      ("exec", {"command": "true", "timeout": "soon", "env": None}),
  ]  # fmt: skip
  where, wrong, code, *fine = results(shown, {"d e/f": b""})
  assert where == "/workspace/d e\nit's $HOME 日"
  assert "-x: No such file" in wrong and wrong.endswith("(Command exited with code 1)")
  assert code == "0\n\n(Command exited with code 3)" and fine == ["(no output)"] * 2
  for args, result in zip(bad, results([("exec", args) for args in bad])):
    assert result.startswith("Error: "), (args, result)


def test_tools_that_are_not_offered_are_unknown():
  assert results([("process", {"action": "list"})]) == [
      "Error: no tool 'process'; there are read, write, edit, exec"
  ]
  assert results([("read", {"path": "a"})], offered=("exec",)) == [
      "Error: no tool 'read'; there are exec"
  ]


def test_what_is_offered_follows_from_what_is_required():
  assert tools.offered(()) == tools.offered(("read", "nothing")) == tools.DEFAULT
  assert tools.offered(("web", "outbox", "process")) == (
      "read", "write", "edit", "exec", "process", "web_search", "web_fetch", "message",
  )  # fmt: skip
  full, compact = tools.schemas(tools.TOOLS), tools.compact_schemas(tools.TOOLS)
  assert [tool["function"]["name"] for tool in full] == list(tools.TOOLS)
  for short, long in zip(compact, full):
    short, long = short["function"], long["function"]
    assert short["name"] == long["name"]
    assert short["parameters"]["required"] == long["parameters"]["required"]
    for key, kind in short["parameters"]["properties"].items():
      assert kind["type"] == long["parameters"]["properties"][key]["type"]


def test_the_prompt_of_trained_models_is_unchanged():
  text = json.dumps(tools.compact_schemas())
  assert hashlib.sha256(text.encode()).hexdigest() == COMPACT_SHA256


VALUES = [
    None, True, -1, 2.5, float("nan"), 10**400, "", "\ud800", "x" * 99_999, [], [{}], {},
]  # fmt: skip
SOUND = {"path": "a", "command": "true", "action": "list"}


def test_no_argument_of_any_type_raises():
  """Every property of every tool, given a value of every kind."""
  calls = []
  for schema in tools.schemas(tools.TOOLS):
    parameters = schema["function"]["parameters"]
    sound = {key: SOUND.get(key, "x") for key in parameters["required"]}
    for key in parameters["properties"]:
      calls += [(schema["function"]["name"], {**sound, key: value}) for value in VALUES]
    calls += [(schema["function"]["name"], text) for text in ("", "[", "null", "3")]

  async def whole():
    async with open_sandbox() as sandbox:
      await sandbox.start({"a": b"text\n"})
      return [
          await tools.execute(sandbox, name, given, offered=tools.TOOLS, seconds=1.0)
          for name, given in calls
      ]

  for call, result in zip(calls, asyncio.run(whole())):
    assert isinstance(result, str) and result and len(result) < 4200, call
