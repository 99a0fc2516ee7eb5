"""A small task that needs the web, the calendar and the outbox, and two solutions."""

from __future__ import annotations

import json
from pathlib import Path

from clawgym_jax.contracts.task import Reference, SolutionCall, Task, save_task

URL = "https://library.example.com/hours"
BODY = "The library opens at 10:30."
CHECK = """
def grade(workspace, final_message, transcript, services):
  sent = [r["data"] for r in services if r["service"] == "outbox"]
  added = [r["data"]["event"] for r in services
           if r["service"] == "calendar" and r["data"]["action"] == "add"]
  return {
      "sent_once": float(len(sent) == 1),
      "sent": float(any(m["to"] == ["ada@example.com"] and m["body"] == "%s"
                        for m in sent)),
      "added": float([(e["title"], e["start"]) for e in added]
                     == [("Library", "2026-01-06 10:30")]),
  }
""" % BODY

BY_TOOLS = [
    SolutionCall("web_search", {"query": "library opening hours"}),
    SolutionCall("web_fetch", {"url": URL}),
    SolutionCall(
        "exec", {"command": "calendar add --title=Library --start='2026-01-06 10:30'"}
    ),
    SolutionCall(
        "message",
        {
            "action": "send",
            "channel": "email",
            "target": "ada@example.com",
            "message": BODY,
        },
    ),
]
BY_SHELL = [
    SolutionCall("exec", {"command": command})
    for command in (
        "websearch library opening hours && calendar list",
        f"webfetch {URL} | grep Opening",
        "calendar add --title=Library --start='2026-01-06 10:30'",
        f"outbox send --to=ada@example.com --body='{BODY}'",
    )
]


def make_task(
    directory: Path, calls: list[SolutionCall] = BY_TOOLS, check: str = CHECK
) -> Task:
  """Writes the task, with this reference solution, to `directory`."""
  pages = [
      {
          "url": URL,
          "html": "<h1>Library</h1><p>Opening hours: we open at <b>10:30</b>.",
      },
      {"url": "https://zoo.example.com/", "text": "# Zoo\n\nOpening hours: 9:00."},
  ]
  event = {
      "id": "e1",
      "title": "Gym",
      "start": "2026-01-06T08:00",
      "end": "2026-01-06T09:00",
  }
  task = Task(
      id=directory.name,
      instruction="Tell Ada by email, 'The library opens at' and the time, and put it"
      " into my calendar for 2026-01-06 as Library.",
      family="errand",
      split="train",
      category="communication",
      operations=("search", "send"),
      requires=("web", "calendar", "outbox"),
  )
  return save_task(
      directory,
      task,
      workspace={"note.txt": b"Ada: ada@example.com\n"},
      checks={"check.py": check.encode()},
      turns=[Reference(calls, "Ada knows.")],
      services={
          "web.jsonl": "\n".join(map(json.dumps, pages)).encode(),
          "calendar.json": json.dumps([event]).encode(),
      },
  )
