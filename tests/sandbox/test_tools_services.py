"""The tools that call the services' programs, and a task solved by them or by shell."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.task import SolutionCall
from data_gen.audit import judge
from sandbox import harnesses, services, tools
from sandbox.backends import open_sandbox
from sandbox.backends.base import pack
from sandbox.fleet import attempt_task, grade_with
from sandbox.gateway.errors import CallError
from sandbox.teacher import translate
from tests import docs
from tests.sandbox.scripted_api import call, reply, serve
from tests.sandbox.service_task import BODY, BY_SHELL, BY_TOOLS, CHECK, URL, make_task

OFFERED = tools.offered(("web", "calendar", "outbox", "cron"))
DEEP: list = []
for _ in range(2000):
  DEEP = [DEEP]
JOB = {
    "name": "standup",
    "schedule": {"kind": "cron", "expr": "0 9 * * 1-5"},
    "payload": {"kind": "agentTurn", "message": "it's\n$HOME -x 日"},
}


def results(tmp_path, *calls):
  """(texts, reports) of these calls in a sandbox with every service."""
  task = make_task(tmp_path / "t")
  object.__setattr__(task, "requires", ("web", "calendar", "outbox", "cron"))

  async def whole():
    async with open_sandbox(folders=(services.FOLDER,)) as sandbox:
      await sandbox.start({"a b.pdf": b"\0\xff"})
      await sandbox.restore(pack(services.files(task)), services.FOLDER)
      said = [
          await tools.execute(sandbox, name, args, offered=OFFERED)
          for name, args in calls
      ]
      return said, [report["data"] for report in sandbox.reports]

  return asyncio.run(whole())


def attempt(task, *answers):
  async def whole():
    async with serve(*answers) as api:
      result = await attempt_task(task, harnesses.load("claw"), base_url=api.url)
      return result, api.requests

  return asyncio.run(whole())


@pytest.mark.parametrize("calls", [BY_TOOLS, BY_SHELL], ids=["tools", "shell"])
def test_a_task_solved_through_services(tmp_path, calls):
  task = make_task(tmp_path / "t", calls)
  result = asyncio.run(attempt_task(task, harnesses.load("oracle")))
  assert result.outcome.score == 1.0, (result.outcome, result.transcript)
  assert [r["service"] for r in result.reports] == ["calendar", "outbox"]
  assert result.reports[1]["data"]["body"] == BODY and result.duplicates == []
  assert all(r["seconds"] >= 0 for r in result.reports)
  null = asyncio.run(attempt_task(task, harnesses.load("null")))
  assert null.outcome.score == 0.0 and null.reports == []


@pytest.mark.parametrize("shell", ["exec", "bash"])
def test_the_teacher_calls_the_programs_where_there_is_but_a_shell(tmp_path, shell):
  commands = [
      args["command"] for c in BY_TOOLS for _, args in translate(c, {shell: {}})
  ]
  assert commands[0] == "websearch -- 'library opening hours'"
  assert (
      commands[3] == f"outbox send --to=ada@example.com --channel=email '--body={BODY}'"
  )
  calls = [SolutionCall("exec", {"command": command}) for command in commands]
  task = make_task(tmp_path / "t", calls)
  assert asyncio.run(grade_with(task, "oracle")).score == 1.0
  job = SolutionCall("cron", {"action": "wake", "text": "-x"})
  assert translate(job, {"exec": {}}) == [
      ("exec", {"command": "cron wake --mode=now -- -x"})
  ]
  with pytest.raises(CallError, match="buffer"):
    translate(
        SolutionCall("message", {"action": "send", "target": "a", "buffer": "aGk="}),
        {"bash": {}},
    )


@pytest.mark.parametrize("calls", [BY_TOOLS, BY_SHELL], ids=["tools", "shell"])
def test_claw_is_offered_what_the_task_requires(tmp_path, calls):
  task = make_task(tmp_path / "t")
  answers = [reply(None, call(c.name, **c.arguments)) for c in calls]
  result, requests = attempt(task, *answers, reply("Done."))
  assert result.outcome.score == 1.0
  names = [t["function"]["name"] for t in requests[0]["tools"]]
  assert names == [
      "read",
      "write",
      "edit",
      "exec",
      "web_search",
      "web_fetch",
      "message",
  ]
  asked = requests[0]["messages"][1]["content"]
  assert asked.startswith(
      f"[2026-01-05] {task.instruction}\n\nPrograms for this: outbox,"
  )
  assert "calendar, websearch, webfetch" in asked and "--help" in asked


def test_search_and_fetch(tmp_path):
  said, reports = results(
      tmp_path,
      ("web_search", {"query": "library opening hours", "count": 1, "region": "at"}),
      ("web_search", {"query": "--help 'zebra'\n"}),
      ("web_fetch", {"url": URL}),
      ("web_fetch", {"url": URL, "extractMode": "text", "maxChars": 100}),
      ("web_fetch", {"url": "https://nowhere.example.com"}),
      ("web_search", {"query": "x", "count": 11}),
      ("web_fetch", {"url": URL, "extractMode": "pdf"}),
      ("web_fetch", {"url": URL, "maxChars": 99}),
      ("web_fetch", {"url": 3}),
  )
  found, none, page, text, missing, *bad = said
  assert json.loads(found)["url"] == URL and "10:30" in found and none == "(no results)"
  assert page == "# Library\n\nOpening hours: we open at **10:30**."
  assert text == "Library\n\nOpening hours: we open at 10:30."
  assert json.loads(missing) == {
      "status": "error", "tool": "web_fetch",
      "error": "webfetch: 404: there is no page https://nowhere.example.com",
  }  # fmt: skip
  assert [json.loads(b)["error"] for b in bad] == [
      "count must be from 1 to 10",
      "extractMode must be one of markdown, text",
      "maxChars must be at least 100",
      "web_fetch needs url (string)",
  ]
  assert reports == []


def test_messages(tmp_path):
  encoded = base64.b64encode(b"hi").decode()
  odd = 'it\'s "q" $HOME\n-日\0 \ud800'
  said, reports = results(
      tmp_path,
      ("message", {"action": "send", "target": "-x", "channel": "slack",
                   "message": odd}),
      ("message", {"action": "broadcast", "targets": ["a", "b"], "subject": "S",
                   "media": "a b.pdf", "silent": True, "replyTo": "m1",
                   "threadId": "t"}),
      ("message", {"action": "send", "target": "a", "filename": "../x/c.txt",
                   "buffer": f"data:text/plain;base64,{encoded}"}),
      ("message", {"action": "send", "target": "a", "message": "m", "dryRun": True}),
      ("exec", {"command": "outbox list | wc -l"}),
  )  # fmt: skip
  assert said == [
      "Sent m1 by slack to -x.", "Sent m2 by email to a, b.", "Sent m3 by email to a.",
      "Would send by email to a; nothing was sent.", "3",
  ]  # fmt: skip
  first, second, third = reports
  assert first["body"].startswith('it\'s "q" $HOME\n-日 ') and first["to"] == ["-x"]
  assert second["to"] == ["a", "b"] and second["attachments"][0]["name"] == "a b.pdf"
  assert (second["reply_to"], second["thread"], second["silent"]) == ("m1", "t", True)
  assert (
      third["attachments"][0]["name"] == "c.txt"
      and third["attachments"][0]["bytes"] == 2
  )


def test_no_message(tmp_path):
  bad = [
      ({}, "message needs action (string)"),
      ({"action": "shout"}, "action must be one of send, broadcast"),
      ({"action": "send", "message": "x"}, "message send needs target (string)"),
      ({"action": "broadcast", "message": "x"}, "broadcast needs targets (array)"),
      ({"action": "broadcast", "targets": ["a", 3]}, "targets[1] must be a string"),
      ({"action": "send", "target": "a"}, "the message is empty"),
      ({"action": "send", "target": "a", "media": "nowhere"}, "nowhere: No such file"),
      ({"action": "send", "target": "a", "buffer": "%%"}, "buffer is not base64"),
      ({"action": "send", "target": "a", "message": "x" * 70_000}, "too large"),
      ({"action": "send", "target": "a", "message": "'" * 70_000}, "too long"),
      ({"action": "send", "target": "a", "message": "x", "silent": 1}, "a boolean"),
  ]
  said, reports = results(tmp_path, *(("message", args) for args, _ in bad))
  for (_, part), text in zip(bad, said, strict=True):
    answer = json.loads(text)
    assert answer["tool"] == "message" and part in answer["error"], answer
  assert reports == []


def test_jobs(tmp_path):
  said, reports = results(
      tmp_path,
      ("cron", {"action": "add", "job": JOB, "contextMessages": 3}),
      ("cron", {"action": "update", "jobId": "job-1", "patch": {"enabled": False}}),
      ("cron", {"action": "list"}),
      ("cron", {"action": "list", "includeDisabled": True}),
      ("cron", {"action": "run", "jobId": "job-1", "runMode": "due"}),
      ("cron", {"action": "run", "jobId": "job-1"}),
      ("cron", {"action": "runs", "jobId": "job-1"}),
      ("cron", {"action": "wake", "text": "-x", "mode": "next-heartbeat"}),
      ("cron", {"action": "status"}),
      ("cron", {"action": "remove", "jobId": "job-1"}),
  )
  job = {"id": "job-1", **JOB, "sessionTarget": "isolated", "enabled": False}
  assert said[:3] == ["Added job-1: standup.", "Updated job-1: enabled.", "(nothing)"]
  assert json.loads(said[3]) == job
  assert json.loads(said[4])["error"].startswith("cron: job-1 is not due: it is off")
  assert said[5:] == [
      "Ran job-1: standup.", '{"run": "job-1", "mode": "force", "at": ""}',
      "Woken (next-heartbeat).", '{"jobs": 1, "enabled": 0}', "Removed job-1: standup.",
  ]  # fmt: skip
  assert [d["action"] for d in reports] == ["add", "update", "run", "wake", "remove"]
  bad = [
      ({"action": "add"}, "cron add needs job (object)"),
      ({"action": "add", "job": {"name": 3}}, "job.name must be a string"),
      ({"action": "add", "job": {"name": "x"}}, "schedule needs a kind"),
      ({"action": "update", "patch": {"name": "x"}}, "cron update needs jobId"),
      ({"action": "update", "jobId": "x", "patch": {"name": "x"}}, "there is no x"),
      ({"action": "update", "jobId": "x"}, "cron update needs patch (object)"),
      ({"action": "wake"}, "cron wake needs text"),
      ({"action": "stop"}, "action must be one of status"),
      ({"action": "add", "job": {"x": DEEP}}, "nested too deeply"),
      ({"action": "wake", "text": "x", "contextMessages": 11}, "from 0 to 10"),
  ]
  said, reports = results(tmp_path, *(("cron", args) for args, _ in bad))
  for (_, part), text in zip(bad, said, strict=True):
    assert part in json.loads(text)["error"], text
  assert reports == []


def test_without_the_service():
  async def whole():
    async with open_sandbox() as sandbox:
      await sandbox.start()
      args = {"action": "send", "target": "a", "message": "x"}
      return await tools.execute(sandbox, "message", args, offered=OFFERED)

  assert json.loads(asyncio.run(whole()))["error"] == "this task has no such service"


def test_a_report_is_what_counts_not_what_the_agent_left(tmp_path):
  """Broken programs and forged state make no side effect."""
  forged = (
      'mkdir -p /services/state; echo \'[{"id":"m1"}]\' > /services/state/outbox.json;'
      " rm -r /services/bin; outbox list"
  )
  task = make_task(tmp_path / "t")
  result, _ = attempt(task, reply("", call("exec", command=forged)), reply("Sent."))
  assert result.outcome.score == 0.0 and result.reports == []


@pytest.mark.parametrize(
    "calls, check, cause",
    [
        (BY_TOOLS, CHECK, None),
        (BY_SHELL, CHECK, None),
        (BY_TOOLS[:3], CHECK, "oracle scores 0.333"),
        (BY_TOOLS, "def grade(w, f, t, services): return {'a': float(bool(services))}",
         "a spoiled result still scores 1"),
    ],
)  # fmt: skip
def test_the_audit_judges_side_effects(tmp_path, calls, check, cause):
  causes = asyncio.run(judge(make_task(tmp_path / "t", calls, check))).causes
  assert causes == [] if cause is None else causes[0].startswith(cause), causes


FORGED = """
import socket
for line in [
    '{"service": "outbox", "data": {"to": ["ada@example.com"], "body": "10:30"}}',
    '{"service": "outbox", "data": {"a": NaN}}', '{"service": "outbox", "data": 3}',
    '{"service": "outbox", "data": {"a": 1e999}}', '{"service": 3, "data": {}}', '{',
    '{"service": "outbox", "data": {"a": ' + "[" * 900 + "]" * 900 + "}}",
    '{"service": "x", "data": {"a": "\\\\ud800"}, "seconds": -5, "more": 1}',
    '{"service": "calendar", "data": {"action": "add", "id": "e", "event": {}}}',
]:
  with socket.socket(socket.AF_UNIX) as channel:
    channel.connect("/run/sandbox/report")
    channel.sendall(line.encode() + b"\\n")
    channel.recv(99)
"""


def test_reports_that_are_none_hurt_nobody(tmp_path):
  """No word of the agent's own makes a check fail: that would spare it its zero."""
  task = make_task(tmp_path / "t")
  forge = call("exec", command=f"python3 - <<'END'{FORGED}END")
  send = call("message", **BY_TOOLS[3].arguments)
  result, _ = attempt(task, reply("", forge, send), reply("Sent."))
  assert result.outcome.checks == {"sent_once": 1.0, "sent": 1.0, "added": 0.0}
  assert [r["data"]["id"] for r in result.reports] == ["m1"]
  assert json_text.parse(json_text.dump(result.reports)) == result.reports


def test_what_a_program_says_is_a_side_effect(tmp_path):
  """Each kind of report, as made; none that lacks a key or has one of another kind."""
  calls = [
      ("exec", {"command": "calendar update e1 --notes=x; calendar delete e1"}),
      ("exec", {"command": "calendar add --title=a --start=2026-01-01T10:00Z"}),
      (
          "message",
          {"action": "send", "target": "a", "media": "a b.pdf", "silent": True},
      ),
      ("cron", {"action": "add", "job": JOB}),
      ("cron", {"action": "update", "jobId": "job-1", "patch": {"enabled": False}}),
      ("cron", {"action": "run", "jobId": "job-1"}),
      ("cron", {"action": "wake", "text": "x"}),
      ("cron", {"action": "remove", "jobId": "job-1"}),
  ]
  said, data = results(tmp_path, *calls)
  assert len(data) == 9, said
  for one in data:
    service = "cron" if "job" in one or one["action"] in ("run", "wake") else "calendar"
    service = "outbox" if one["action"] == "send" else service
    report = {"service": service, "data": one}
    assert services.effects([report]) == [report], one
    needed = set(one) - {"silent"}
    for key in needed:
      for value in (None, 3, ["x", 3], {"id": 3, "start": "x"}):
        if key == "patch" and isinstance(value, dict):
          continue  # of a patch all is possible
        assert not services.effects([{"service": service, "data": {**one, key: value}}])
      lacking = {k: v for k, v in one.items() if k != key}
      assert not services.effects([{"service": service, "data": lacking}])


@pytest.mark.parametrize("kind", ["docker", "kubernetes"])
def test_services_are_in_every_kind_of_sandbox(tmp_path, request, kind):
  request.getfixturevalue({"docker": "docker_host"}.get(kind, kind))
  task = make_task(tmp_path / "t", BY_SHELL)
  result = asyncio.run(attempt_task(task, harnesses.load("oracle"), backend=kind))
  assert result.outcome.score == 1.0, (result.outcome, result.transcript)


def test_the_guide_is_true(tmp_path):
  for block in docs.blocks("services.md"):
    docs.run_block(block, tmp_path)
  (line,) = (tmp_path / "runs" / "trajectories.jsonl").read_text().splitlines()
  record = json.loads(line)
  assert record["outcome"]["score"] == 1.0 and record["metadata"]["duplicates"] == []
  assert record["metadata"]["reports"][0]["data"]["body"] == "10:30"
