"""What a model wrote is taken whole and in the form asked for, or not at all."""

from __future__ import annotations

import json

import pytest

from data_gen.llm import replies
from data_gen.llm.endpoint import Answer
from data_gen.llm.model import said
from data_gen.llm.replies import BadReply
from tests.data_gen import fake_llm


def _task(*files: tuple[str, str], **given) -> str:
  raw = json.loads(fake_llm.task(1234, {}).strip("`").removeprefix("json"))
  if files:
    raw["files"] = [{"path": path, "content": text} for path, text in files]
  return json.dumps({**raw, **given})


def test_json_stands_alone_or_in_one_block():
  bare = _task()
  for text in (bare, f"```json\n{bare}\n```", f"Here it is:\n```\n{bare}\n```\nDone."):
    assert replies.task(text).files["notes.md"].startswith(b"# Orders")
  for text in ("", "Sure!", bare[:-9], f"[{bare}]", f"x {bare}",
               f"```json\n{bare}\n```\n```json\n{bare}\n```"):  # fmt: skip
    with pytest.raises(BadReply) as refused:
      replies.task(text)
    assert refused.value.cause == "no_json"
  with pytest.raises(BadReply, match="no object of plain values"):
    replies.task('{"difficulty": NaN}')
  with pytest.raises(BadReply, match="nested too deeply"):
    replies.task('{"files": ' + "[" * 200_000)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "~/a", "a\\..\\b", "a\nb",
        "", "a/", ".git/config", "a/.git/HEAD", "x" * 201, "\ud800", None,
    ],
)  # fmt: skip
def test_no_path_leaves_the_workspace(path):
  with pytest.raises(BadReply):
    replies.task(_task((path, "x")))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"files": []}, "at least one"),
        ({"files": [{"path": f"f{n}", "content": ""} for n in range(65)]}, "65 files"),
        ({"files": [{"path": "a", "content": "x" * ((1 << 20) + 1)}]}, "1048577 bytes"),
        ({"files": [{"path": "a", "content": "\ud800"}]}, "surrogate"),
        ({"files": [{"path": "a", "content": 1}]}, "must be a text"),
        ({"files": ["a"]}, "must be an object"),
        ({"files": [{"path": "a", "content": ""}] * 2}, "twice"),
        ({"files": [{"path": p, "content": ""} for p in ("a", "a/b")]}, "a folder"),
        ({"instruction": "Do."}, "instruction"),
        ({"instruction": ["Do it"]}, "instruction"),
        ({"requires": ["browser"]}, "browser"),
        ({"services": {"outbox": []}}, "does not name"),
        ({"difficulty": 9}, "difficulty"),
    ],
)  # fmt: skip
def test_a_task_out_of_bounds_is_refused_by_name(given, says):
  with pytest.raises(BadReply, match=says):
    replies.task(_task(**given))


def test_services_become_their_seed_files():
  pages = [{"url": "https://a.example/", "text": "Open."}]
  sent = [{"id": "m1", "channel": "email", "to": ["a@a.example"], "body": "Hi"}]
  written = replies.task(
      _task(requires=["web", "outbox"], services={"web": pages, "outbox": sent})
  )
  assert json.loads(written.services["web.jsonl"]) == pages[0]
  assert json.loads(written.services["outbox.json"]) == sent


def test_a_program_is_one_block_that_compiles_and_grades():
  assert replies.program(fake_llm.checks(1234, {})) == fake_llm.program(1234)
  arguments = "workspace, final_message, transcript, services"
  for text, says in (
      ("def grade(): pass", "0 fenced blocks"),
      ("```python\nx\n```\n```python\nx\n```", "2 fenced blocks"),
      ("```python\ndef grade(\n```", "compiled"),
      ("```python\ndef judge(): pass\n```", "no function grade"),
      ("```python\ndef grade(workspace): pass\n```", "must take"),
      (f"```python\nasync def grade({arguments}): pass\n```", "no function grade"),
      ("```python\n" + "(" * 90_000 + "\n```", "compiled"),
      ("```python\n" + "#" * 100_001 + "\n```", "100000 bytes"),
  ):
    with pytest.raises(BadReply, match=says):
      replies.program(text)


def test_criteria_look_at_what_was_delivered():
  good = fake_llm.rubric(1234, {})
  delivered = {"out/paid1234.json"}
  found = replies.rubric(good, delivered)
  assert [one.file_path for one in found] == ["", "out/paid1234.json"]
  assert found[1].weight == 1
  with pytest.raises(BadReply, match="file_path"):
    replies.rubric(good, {"out/other.json"})
  with pytest.raises(BadReply, match="what earns each"):
    replies.rubric(good.replace('"0.25"', '"0.3"'), delivered)
  with pytest.raises(BadReply, match="two criteria"):
    replies.rubric(good.replace("readable", "plain_words"), delivered)


def test_a_repair_changes_what_it_names():
  written = replies.task(_task())
  text = (
      '```json\n{"files": {"notes.md": null, "more/a.txt": "new"}, "solve_again": true}'
      "\n```\n" + fake_llm.checks(1234, {})
  )
  change = replies.repair(text)
  assert change.check == fake_llm.program(1234) and change.again
  left = replies.repaired(written, change)
  assert set(left.files) == {"data/case1234.csv", "more/a.txt"}
  assert left.instruction == written.instruction
  for text in ("Fine as it is.", "```json\n{}\n```", '{"files": {"../a": "x"}}'):
    with pytest.raises(BadReply):
      replies.repair(text)
  gone = replies.repair('{"files": {"notes.md": null, "data/case1234.csv": null}}')
  with pytest.raises(BadReply, match="0 files would be left"):
    replies.repaired(written, gone)


def test_cut_refused_and_empty_replies_are_told_apart():
  def cause(content, finish_reason="stop", **more) -> str:
    with pytest.raises(BadReply) as bad:
      said(Answer({"role": "assistant", "content": content, **more}, finish_reason))
    return bad.value.cause

  assert cause('{"a": 1}', "length") == "truncated"
  assert cause("", "content_filter") == cause(None, refusal="No.") == "refused"
  assert cause(None) == cause("<think>{}</think> \n") == "empty"
  thought = {"type": "text", "text": "<think>a\nb</think>\n"}
  parts = [thought, {"type": "text", "text": "c"}]
  assert said(Answer({"role": "assistant", "content": parts}, "stop")) == "c"
