"""The services' programs: what they print, keep and report, and what they refuse."""

from __future__ import annotations

import hashlib
import json
import subprocess

import pytest

from sandbox import services
from sandbox.services.programs import pages, ranking
from tests.sandbox.staged_services import PYTHON, staged

EVENTS = [
    {"id": "e1", "title": "Standup", "start": "2026-01-05T09:00",
     "end": "2026-01-05T09:15"},
    {"id": "e7", "title": "Fête", "start": "2026-01-09", "end": "2026-01-10",
     "location": "Ü-Raum", "attendees": ["ada@example.com"]},
]  # fmt: skip
HTML = """<!doctype html><html><head><title>Opening
 hours</title><style>p {color: red}</style><script>var x = "<p>no</p>";</script></head>
<body><nav><a href="/">Home</a></nav><h1>City &amp; library</h1>
<p>Open <b>daily</b>, see <a href="hours.html#x">the hours</a>.<br>Ring twice.</p>
<ul><li>Main desk<ul><li>Room 2</li></ul></li><li>Café</li></ul>
<ol><li>one<li>two</ol><pre>a  b
  c</pre><p>Use <code>ls -l</code>.</p>
<table><tr><th>Day</th><th>From</th></tr><tr><td>Mon</td><td>9:00</td></tr></table>
<blockquote>Quiet please</blockquote><img alt="A map" src="m.png"></body></html>"""
WEB = [
    {"url": "https://lib.example.com/info/", "html": HTML},
    {
        "url": "https://x.example.com/cats",
        "title": "Cats",
        "text": "# Cats\n\nCats sleep.",
    },
    {
        "url": "https://x.example.com/dogs?b=1",
        "text": "# Dogs\n\nA **dog** [barks](/b).",
    },
]
JOB = {
    "name": "standup",
    "schedule": {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Europe/Berlin"},
    "payload": {"kind": "agentTurn", "message": "Post the agenda"},
}


def test_a_message_is_reported_then_kept():
  with staged() as box:
    (box.root / "a b.pdf").write_bytes(b"\0\xff")
    assert box.run(
        "outbox", "send", "--to=ada@example.com", "--to=#team", "--channel=Slack",
        "--subject=Grüße", "--body=-rf 'x'\n日本", "--attach=a b.pdf",
        "--reply-to=m0", "--thread=t9", "--silent",
    ) == (0, "Sent m1 by slack to ada@example.com, #team.")  # fmt: skip
    body = b"from \xff input"
    assert box.run("outbox", "send", "--to=b", "--body-file=-", data=body) == (
        0, "Sent m2 by email to b.",
    )  # fmt: skip
    message = {
        "id": "m1", "channel": "slack", "to": ["ada@example.com", "#team"],
        "subject": "Grüße", "body": "-rf 'x'\n日本",
        "attachments": [{"name": "a b.pdf", "bytes": 2,
                         "sha256": hashlib.sha256(b"\0\xff").hexdigest()}],
        "reply_to": "m0", "thread": "t9", "silent": True,
    }  # fmt: skip
    assert box.reports[0] == {
        "service": "outbox",
        "data": {"action": "send", **message},
    }
    assert box.reports[1]["data"]["body"] == "from \ufffd input"
    assert box.records("outbox", "list")[0] == message
    assert box.records("outbox", "list", "--channel=email")[0]["id"] == "m2"
    assert box.records("outbox", "show", "m1") == [message]
    assert len(box.reports) == 2  # looking is no side effect


def test_what_the_controller_does_not_take_did_not_happen():
  with staged() as box:
    box.answer = b"error: too many reports\n"
    code, said = box.run("outbox", "send", "--to=a", "--body=x")
    assert code == 1 and "too many reports" in said and "Sent" not in said
    code, said = box.run("outbox", "send", "--to=a", "--body=x", report="nowhere")
    assert code == 1 and "can't be reached: No such file" in said
    code, said = box.run("calendar", "add", "--title=x", "--start=2026-01-01")
    assert code == 1
    assert box.run("outbox", "list") == box.run("calendar", "list") == (0, "")


def test_no_message():
  with staged() as box:
    for argv, said in [
        (["--to=a"], "the message is empty"),
        (["--to= ", "--body=x"], "a recipient is empty"),
        (["--to=a", "--body=x", "--channel=so so"], "no channel is called 'so so'"),
        (["--to=a", "--attach=nowhere"], "nowhere: No such file"),
        (["--to=a", "--attach=bin"], "bin: Is a directory"),
        (["--to=a", "--attach=/dev/zero"], "/dev/zero is not a regular file"),
        (["--to=a", "--body-file=nowhere"], "nowhere: No such file"),
        (["--to=a", "--body=" + "é" * 40_000], "too large: "),
        (["--body=x"], "required: --to"),
        (["--to=a", "--bod=x"], "unrecognized arguments: --bod=x"),
    ]:
      code, text = box.run("outbox", "send", *argv)
      assert code in (1, 2) and said in text, text
    code, text = box.run("outbox", "send", "--to=a", "--body=x", "--dry-run")
    assert (code, text) == (0, "Would send by email to a; nothing was sent.")
    assert not box.reports and box.run("outbox", "list") == (0, "")


def test_messages_at_once_are_all_counted():
  with staged() as box:
    env = {"CLAWGYM_REPORT": str(box.root / "report")}
    running = [
        subprocess.Popen(
            box.command("outbox", "send", "--to=a", "--body=same"),
            env=env, stdout=subprocess.PIPE,
        )
        for _ in range(8)
    ]  # fmt: skip
    assert all(p.communicate()[0] and p.returncode == 0 for p in running)
    ids = {record["id"] for record in box.records("outbox", "list")}
    assert ids == {f"m{n}" for n in range(1, 9)}
    (twice,) = services.duplicates(box.reports)
    assert twice["times"] == 8 and twice["data"]["body"] == "same"


def test_the_calendar():
  with staged({"calendar.json": EVENTS}) as box:
    titles = lambda *argv: [e["title"] for e in box.records("calendar", "list", *argv)]
    assert titles() == ["Standup", "Fête"]
    assert titles("--from=2026-01-06") == ["Fête"]
    assert titles("--from=2026-01-05T09:15Z", "--to=2026-01-09") == ["Standup"]
    assert titles("--search=ü-raum") == titles("--search=ADA@") == ["Fête"]
    assert box.run(
        "calendar", "add", "--title=Review", "--start=2026-01-05T08:00",
        "--end=2026-01-05T08:30", "--attendee=bo", "--attendee=cy",
    ) == (0, "Added e8: Review, 2026-01-05T08:00 to 2026-01-05T08:30.")  # fmt: skip
    assert titles() == ["Review", "Standup", "Fête"]
    assert box.run("calendar", "update", "e1", "--start=2026-01-05T07:00") == (
        0, "Updated e1: start.",
    )  # fmt: skip
    assert box.run("calendar", "delete", "e7") == (0, "Deleted e7: Fête.")
    assert titles() == ["Standup", "Review"]
    data = [report["data"] for report in box.reports]
    assert [d["action"] for d in data] == ["add", "update", "delete"]
    assert data[0]["event"]["attendees"] == ["bo", "cy"]
    assert data[1] == {
        "action": "update", "id": "e1", "changes": {"start": "2026-01-05T07:00"},
        "event": {**EVENTS[0], "start": "2026-01-05T07:00"},
    }  # fmt: skip
    assert data[2]["event"] == EVENTS[1]
    for argv, said in [
        (["add", "--title=x", "--start=tomorrow"], "'tomorrow' is no time"),
        (["add", "--title=x", "--start=2026-01-02", "--end=2026-01-01"], "ends before"),
        (["add", "--title= ", "--start=2026-01-02"], "title is empty"),
        (["add", "--title=x"], "required: --start"),
        (["update", "e1"], "nothing to change"),
        (["update", "e99", "--title=x"], "there is no e99"),
        (["delete", "e7"], "there is no e7"),
    ]:
      code, text = box.run("calendar", *argv)
      assert code in (1, 2) and said in text, text
    assert len(box.reports) == 3


def test_jobs():
  with staged() as box:
    assert box.run("cron", "add", "--job", json.dumps(JOB)) == (
        0,
        "Added job-1: standup.",
    )
    assert box.run(
        "cron", "add", "--name=once", "--at=2026-01-06T09:00:00Z", "--event=Call",
        "--enabled=no",
    ) == (0, "Added job-2: once.")  # fmt: skip
    first = {"id": "job-1", **JOB, "sessionTarget": "isolated", "enabled": True}
    assert box.records("cron", "list") == [first]
    assert [j["id"] for j in box.records("cron", "list", "--all")] == ["job-1", "job-2"]
    assert box.records("cron", "status") == [{"jobs": 2, "enabled": 1}]
    assert box.run("cron", "update", "job-1", "--every-ms=60000")[0] == 0
    assert box.records("cron", "list")[0]["schedule"] == {
        "kind": "every",
        "everyMs": 60000,
    }
    assert box.run("cron", "run", "job-2", "--mode=due")[0] == 1
    assert box.run("cron", "run", "job-2") == (0, "Ran job-2: once.")
    assert box.records("cron", "runs", "job-2") == [
        {"run": "job-2", "mode": "force", "at": "2026-01-05T09:00:00Z"}
    ]
    assert box.run("cron", "wake", "look here") == (0, "Woken (now).")
    assert box.run("cron", "remove", "job-1") == (0, "Removed job-1: standup.")
    actions = [report["data"]["action"] for report in box.reports]
    assert actions == ["add", "add", "update", "run", "wake", "remove"]
    assert box.reports[0]["data"]["job"] == first


NO_JOBS = [
    ({"name": ""}, "needs a name"),
    ({"name": 3}, "needs a name"),
    ({"schedule": None}, "schedule needs a kind: at, every, cron"),
    ({"schedule": {"kind": "at"}}, "needs at"),
    ({"schedule": {"kind": "at", "at": "noon"}}, "'noon' is no time"),
    ({"schedule": {"kind": "every", "everyMs": 0}}, "more than 0"),
    ({"schedule": {"kind": "every", "everyMs": True}}, "is a number"),
    ({"schedule": {"kind": "cron", "expr": "0 9 * *"}}, "no cron expression"),
    ({"schedule": {"kind": "cron", "expr": "60 9 * * *"}}, "no cron expression"),
    ({"schedule": {"kind": "cron", "expr": "5-1 9 * * *"}}, "no cron expression"),
    ({"schedule": {"kind": "cron", "expr": "*/0 9 * * *"}}, "no cron expression"),
    ({"schedule": {"kind": "cron", "expr": "0 9 * * *", "x": 1}}, "has no x"),
    ({"payload": {"kind": "agentTurn"}}, "needs message"),
    ({"payload": {"kind": "agentTurn", "message": ["x"]}}, "is a text"),
    ({"payload": {"kind": "systemEvent", "text": "x"}, "sessionTarget": "isolated"},
     "goes to main"),
    ({"sessionTarget": "main"}, "goes to main"),
    ({"sessionTarget": 3}, "sessionTarget is"),
    ({"delivery": {"mode": "shout"}}, "delivery needs a mode"),
    ({"enabled": "yes"}, "enabled is true or false"),
    ({"wakeMode": "soon"}, "wakeMode"),
    ({"colour": "red"}, "a job has no colour"),
]  # fmt: skip
TRY_ALL = """
import importlib.machinery, importlib.util, json, sys
loader = importlib.machinery.SourceFileLoader("cron", sys.argv[1])
cron = importlib.util.module_from_spec(importlib.util.spec_from_loader("cron", loader))
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
loader.exec_module(cron)
for job in json.load(sys.stdin):
  try:
    cron.checked(job)
    print("sound")
  except cron.service.Refused as error:
    print(error)
"""


def test_no_job():
  jobs = json.dumps([{**JOB, **change} for change, _ in NO_JOBS] + [JOB])
  with staged() as box:
    done = subprocess.run(
        [PYTHON, "-sEB", "-c", TRY_ALL, str(box.root / "bin" / "cron")],
        input=jobs, capture_output=True, text=True, check=True,
    )  # fmt: skip
    *refused, last = done.stdout.splitlines()
    assert last == "sound"
    for (_, said), text in zip(NO_JOBS, refused, strict=True):
      assert said in text, text
    code, text = box.run("cron", "add", "--job", json.dumps({**JOB, "name": ""}))
    assert (code, text) == (1, "cron: a job needs a name") and not box.reports


def test_cron_expressions():
  with staged() as box:
    for expr in ("* * * * *", "*/5 0-6,12 1,15 jan-mar sun", "0 0 31 12 7"):
      assert box.run("cron", "add", "--name=x", f"--cron={expr}", "--message=y")[0] == 0
    assert box.run("cron", "add", "--job=[1]")[0] == 2


def test_search_and_fetch():
  with staged({"web.jsonl": WEB}) as box:
    first, *_ = box.records("websearch", "library", "hours")
    assert first["title"] == "Opening hours" and first["url"] == WEB[0]["url"]
    assert "see the hours." in first["snippet"] and "\n" not in first["snippet"]
    assert [r["title"] for r in box.records("websearch", "DOG barks")] == ["Dogs"]
    assert len(box.records("websearch", "--count=1", "a")) == 1
    assert box.run("websearch", "zebra") == (0, "(no results)")
    assert box.run("websearch", "--", "--count") == (0, "(no results)")
    assert box.run("websearch", "--count=11", "x")[0] == 2
    assert (
        box.run("webfetch", "http://LIB.example.com/info#top")
        == box.run("webfetch", "lib.example.com/info")
        == box.run("webfetch", WEB[0]["url"])
    )
    assert box.run("webfetch", "https://x.example.com/dogs?b=1") == (
        0, "# Dogs\n\nA **dog** [barks](/b).",
    )  # fmt: skip
    assert box.run("webfetch", "--mode=text", "x.example.com/dogs?b=1") == (
        0, "Dogs\n\nA dog barks.",
    )  # fmt: skip
    code, text = box.run("webfetch", "https://x.example.com/dogs")
    assert (code, text) == (
        1,
        "webfetch: 404: there is no page https://x.example.com/dogs",
    )
    code, text = box.run("webfetch", "--max-chars=100", WEB[0]["url"])
    assert code == 0 and text.splitlines()[-1].startswith("[… ")
    assert not box.reports
  with staged() as box:
    assert box.run("websearch", "x") == (0, "(no results)")


def test_html_becomes_markdown():
  page = {"url": "https://lib.example.com/info/", "html": HTML}
  assert pages.readable(page) == """\
[Home](https://lib.example.com/)

# City & library

Open **daily**, see [the hours](https://lib.example.com/info/hours.html#x).
Ring twice.

- Main desk
  - Room 2
- Café

1. one
2. two

```
a  b
  c
```

Use `ls -l`.

| Day | From |
| --- | --- |
| Mon | 9:00 |

> Quiet please

A map"""
  plain = pages.readable(page, markdown=False)
  assert "**" not in plain and "](" not in plain and "```" not in plain
  assert "Open daily, see the hours.\nRing twice." in plain and "Mon | 9:00" in plain
  broken = {"url": "u", "html": "<table><tr><p>x</ul></tr></a></pre><td>y<b>z &lt;"}
  assert "x" in pages.readable(broken) and "z <" in pages.readable(broken)


def test_ranking_is_by_rare_words_and_repeatable():
  texts = ["the cat", "the dog and the cat", "the the the", "", "a dog"]
  assert [i for _, i in ranking.rank("the dog", texts)] == [1, 4, 2, 0]
  assert ranking.rank("the dog", texts) == ranking.rank("dog the", texts)
  assert all(0 < score <= 1 for score, _ in ranking.rank("the dog", texts))
  assert ranking.rank("", texts) == ranking.rank("dog", []) == []
  assert ranking.rank("ÉTÉ", ["l'été", "ete"])[0][1] == 0
  long = "word " * 300 + "needle here " + "word " * 300
  assert "needle here" in ranking.snippet("needle", long)
  assert len(ranking.snippet("needle", "x" * 5000)) < 210


@pytest.mark.parametrize(
    "program", [p for ps in services.PROGRAMS.values() for p in ps]
)
def test_every_program_explains_itself(program):
  with staged() as box:
    code, text = box.run(program, "--help")
    assert code == 0 and ("examples:" in text)
    assert box.run(program)[0] == 2
    commands = (
        text.partition("{")[2].partition("}")[0].split(",") if "{" in text else []
    )
    for command in commands if program not in ("webfetch",) else []:
      code, text = box.run(program, command, "--help")
      assert code == 0 and len(text.splitlines()) > 3
    for line in box.run(program, "--help")[1].partition("examples:\n")[2].splitlines():
      assert line.strip().startswith(program)


def test_damaged_state_is_said():
  with staged() as box:
    (box.root / "state").mkdir()
    (box.root / "state" / "outbox.json").write_text("{")
    code, text = box.run("outbox", "list")
    assert code == 1 and "outbox.json is damaged" in text


def test_what_can_not_be_kept_is_not_reported():
  with staged() as box:
    (box.root / "state").write_text("")
    code, text = box.run("outbox", "send", "--to=a", "--body=b")
    assert code == 1 and "state: File exists" in text
    (box.root / "state").unlink()
    (box.root / "state" / ".outbox.json").mkdir(parents=True)
    code, text = box.run("outbox", "send", "--to=a", "--body=b")
    assert code == 1 and ".outbox.json: Is a directory" in text
    assert box.reports == []


def test_odd_arguments_are_refused_in_words():
  page = {"url": "https://x.example.com/", "html": "<a href='http://['>here</a>"}
  with staged({"web.jsonl": [page]}) as box:
    for odd in (
        ("outbox", "send", "--to=--", "--body=b"),
        ("outbox", "send", "--to=a", "--body=--"),
        ("cron", "add", '--job={"a": 1e999}'),
        ("websearch", "--count=--", "x"),
    ):
      code, text = box.run(*odd)
      assert code == 2 and "Traceback" not in text
    assert box.reports == []
    assert box.run("webfetch", "[]") == (1, "webfetch: 404: there is no page []")
    assert box.run("webfetch", page["url"]) == (0, "[here](http://[)")


def test_duplicates_look_past_new_ids_alone():
  send = {"action": "send", "id": "m1", "to": ["a"], "body": "x"}
  run = {"action": "run", "id": "job-1"}
  reports = [
      {"service": "outbox", "data": send},
      {"service": "outbox", "data": {**send, "id": "m2"}},
      {"service": "outbox", "data": {**send, "id": "m3", "body": "y"}},
      {"service": "cron", "data": run},
      {"service": "cron", "data": {**run, "id": "job-2"}},
      {
          "service": "calendar",
          "data": {"action": "add", "event": {"id": "e1", "title": "t"}},
      },
      {
          "service": "calendar",
          "data": {"action": "add", "event": {"id": "e2", "title": "t"}},
      },
  ]
  assert [(d["service"], d["times"]) for d in services.duplicates(reports)] == [
      ("outbox", 2), ("calendar", 2),
  ]  # fmt: skip
