"""The mock services that a task can have, and the files they start from.

A task names a service in `requires`; a file of its `services/` directory is
what the service holds at the start:

  outbox.json    messages sent before: {id, channel, to, …}
  calendar.json  events: {id, title, start, end, location, notes, attendees}
  cron.json      jobs: {id, name, schedule, payload, …}
  web.jsonl      pages, one a line: {url, html or text, title}

`check_services` refuses what a program inside could not read.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError, require

SERVICES = {
    "outbox": "outbox.json",
    "calendar": "calendar.json",
    "cron": "cron.json",
    "web": "web.jsonl",
}
MOST_BYTES = 8 << 20  # of all of them: a search reads the whole web
MOST_RECORDS = 5000

_NEEDED = {
    "outbox": ("id", "channel", "body"),
    "calendar": ("id", "title", "start", "end"),
    "cron": ("id", "name"),
    "web": ("url",),
}


def check_services(folder: Path, requires: tuple[str, ...]) -> None:
  """Checks a task's `services/`, which may be absent, against what it requires."""
  if not folder.is_dir():
    require(not folder.exists(), f"{folder} is not a folder")
    require(
        "web" not in requires, f"the task requires web, but has no {folder}/web.jsonl"
    )
    return
  files = {SERVICES[name]: name for name in SERVICES}
  found = sorted(folder.iterdir())
  for path in found:
    require(
        path.name in files and path.is_file() and not path.is_symlink(),
        f"{path} is no file of a service; there are {', '.join(sorted(files))}",
    )
    name = files[path.name]
    require(name in requires, f"{path} is there, but the task does not require {name}")
  if "web" in requires:
    require((folder / "web.jsonl").is_file(), f"{folder} has no web.jsonl")
  size = sum(path.stat().st_size for path in found)
  require(size <= MOST_BYTES, f"{folder} has {size} bytes; at most {MOST_BYTES}")
  for path in found:
    _check_file(path, files[path.name])


def _check_file(path: Path, service: str) -> None:
  for number, record in enumerate(_records(path), 1):
    where = f"{path}: record {number}"
    require(isinstance(record, dict), f"{where} is not an object")
    require(number <= MOST_RECORDS, f"{path} has more than {MOST_RECORDS} records")
    for key in _NEEDED[service]:
      require(
          isinstance(record.get(key), str) and bool(record[key]),
          f"{where} needs {key}, a text",
      )
    _MORE.get(service, lambda where, record: None)(where, record)


def _records(path: Path) -> list[Any]:
  try:
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
      return [json_text.parse(line) for line in text.split("\n") if line.strip()]
    records = json_text.parse(text)
  except ValueError as error:
    raise RecordError(f"{path} can't be read: {error}") from None
  require(isinstance(records, list), f"{path} is not a list")
  return records


def _check_event(where: str, event: dict[str, Any]) -> None:
  for key in ("start", "end"):
    text = event[key]
    try:
      datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
      raise RecordError(f"{where}: {key} = {text[:40]!r} is no ISO time") from None
  for key in ("location", "notes"):
    require(isinstance(event.get(key, ""), str), f"{where}: {key} is no text")
  people = event.get("attendees", [])
  require(
      isinstance(people, list) and all(isinstance(one, str) for one in people),
      f"{where}: attendees is no list of texts",
  )


def _check_job(where: str, job: dict[str, Any]) -> None:
  for key in ("schedule", "payload"):
    require(
        isinstance(job.get(key), dict) and isinstance(job[key].get("kind"), str),
        f"{where} needs {key}, an object with a kind",
    )
  require(isinstance(job.get("enabled"), bool), f"{where} needs enabled, true or false")


def _check_page(where: str, page: dict[str, Any]) -> None:
  bodies = [key for key in ("html", "text") if key in page]
  require(
      len(bodies) == 1 and isinstance(page[bodies[0]], str),
      f"{where} needs html or text, one of them",
  )
  require(isinstance(page.get("title", ""), str), f"{where}: title is no text")


_MORE = {"calendar": _check_event, "cron": _check_job, "web": _check_page}
