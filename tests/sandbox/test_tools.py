"""The Claw tools: their results, and that nothing a model writes raises."""

from __future__ import annotations

import asyncio
import json

from sandbox import tools
from sandbox.backends import open_sandbox
from sandbox.tools.results import RESULT_CHARS, shorten


def results(calls, files=None):
  async def whole():
    async with open_sandbox() as sandbox:
      await sandbox.start(files or {})
      return [await tools.execute(sandbox, name, args) for name, args in calls]

  return asyncio.run(whole())


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
