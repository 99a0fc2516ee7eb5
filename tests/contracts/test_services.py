"""A task's services: kept with it, and refused where a program could not read them."""

from __future__ import annotations

import json

import pytest

from clawgym_jax.contracts import services
from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.task import (
    Reference,
    Task,
    content_hash,
    load_task,
    save_task,
)
from data_gen.convert import convert

EVENT = {"id": "e1", "title": "T", "start": "2026-01-05T09:00Z", "end": "2026-01-05"}
JOB = {
    "id": "j", "name": "n", "enabled": True, "schedule": {"kind": "at"},
    "payload": {"kind": "agentTurn"},
}  # fmt: skip
SEEDS = {
    "outbox.json": [{"id": "m1", "channel": "email", "body": "é"}],
    "calendar.json": [EVENT],
    "cron.json": [JOB],
    "web.jsonl": {"url": "https://x.example.com", "text": "é"},
}


def saved(directory, seeds, requires=tuple(services.SERVICES)):
  task = Task("t", "i", "f", "train", "c", ("o",), requires=requires)
  return save_task(
      directory,
      task,
      workspace={},
      checks={"check.py": b""},
      turns=[Reference([], "")],
      services={
          name: value if isinstance(value, bytes) else json.dumps(value).encode()
          for name, value in seeds.items()
      },
  )


def test_services_travel_with_their_task(tmp_path):
  task = saved(tmp_path / "tasks" / "t", SEEDS)
  assert sorted(p.name for p in task.services.iterdir()) == sorted(SEEDS)
  convert(tmp_path / "tasks", tmp_path / "t.tar")
  convert(tmp_path / "t.tar", tmp_path / "back")
  again = load_task(tmp_path / "back" / "t")
  assert again == task
  assert (again.services / "web.jsonl").read_bytes() == (
      task.services / "web.jsonl"
  ).read_bytes()
  before = task.provenance["content_hash"]
  (task.services / "calendar.json").write_text("[]")
  record = json.loads((task.root / "task.json").read_text())
  assert content_hash(task.root, record) != before


def test_a_task_may_have_none(tmp_path):
  task = saved(tmp_path / "t", {}, ("calendar", "outbox"))
  assert not task.services.exists()


@pytest.mark.parametrize(
    "seeds, requires, said",
    [
        ({}, ("web",), "requires web, but has no"),
        ({"calendar.json": []}, ("web", "calendar"), "has no web.jsonl"),
        ({"calendar.json": []}, (), "does not require calendar"),
        ({"mail.json": []}, ("outbox",), "is no file of a service"),
        ({"sub/calendar.json": []}, ("calendar",), "is no file of a service"),
        ({"calendar.json": b"{"}, ("calendar",), "can't be read"),
        ({"calendar.json": b"\xff"}, ("calendar",), "can't be read"),
        ({"calendar.json": b"[" * 99_999}, ("calendar",), "can't be read"),
        ({"calendar.json": {}}, ("calendar",), "is not a list"),
        ({"calendar.json": [3]}, ("calendar",), "record 1 is not an object"),
        ({"calendar.json": [{**EVENT, "title": ""}]}, ("calendar",), "needs title"),
        (
            {"calendar.json": [{**EVENT, "end": "soon"}]},
            ("calendar",),
            "'soon' is no ISO",
        ),
        ({"calendar.json": [{**EVENT, "attendees": "a"}]}, ("calendar",), "attendees"),
        ({"calendar.json": [{**EVENT, "notes": 3}]}, ("calendar",), "notes is no text"),
        ({"outbox.json": [{"id": "m"}]}, ("outbox",), "needs channel"),
        ({"cron.json": [{**JOB, "schedule": {}}]}, ("cron",), "needs schedule"),
        ({"cron.json": [{**JOB, "enabled": 1}]}, ("cron",), "needs enabled"),
        ({"web.jsonl": {"url": "u"}}, ("web",), "needs html or text"),
        ({"web.jsonl": {"url": "u", "html": "", "text": ""}}, ("web",), "one of them"),
        ({"web.jsonl": {"url": 3, "text": ""}}, ("web",), "needs url"),
        ({"web.jsonl": {"url": "u", "text": "", "title": 3}}, ("web",), "title"),
        ({"web.jsonl": b" " * (9 << 20)}, ("web",), "at most 8388608"),
        ({"outbox.json": [{}] * 5001}, ("outbox",), "needs id|more than 5000"),
    ],
)
def test_broken_services_are_named(tmp_path, seeds, requires, said):
  with pytest.raises(RecordError, match=said):
    saved(tmp_path / "t", seeds, requires)
  assert not (tmp_path / "t").exists() or not list(tmp_path.glob(".*"))


def test_a_link_is_no_file_of_a_service(tmp_path):
  task = saved(tmp_path / "t", {"web.jsonl": SEEDS["web.jsonl"]})
  (task.services / "calendar.json").symlink_to("/etc/passwd")
  with pytest.raises(RecordError, match="is no file of a service"):
    load_task(tmp_path / "t")
