#!/usr/bin/python3 -sEB
"""calendar: the user's events, from the task's calendar.json.

Times are ISO 8601 as they were written (2026-01-05T09:00, or a date for whole
days); one without a zone is UTC. Every change is reported.
"""

from __future__ import annotations

import service
from datetime import datetime, timezone

SERVICE = "calendar"
FIELDS = ("title", "start", "end", "location", "notes")


def show_all(options):
  first = _time(options.first) if options.first else None
  last = _time(options.last) if options.last else None
  wanted = (options.search or "").casefold()
  with service.records(SERVICE) as events:
    for event in sorted(events, key=lambda e: (_time(e["start"]), e["id"])):
      text = " ".join(str(event.get(key, "")) for key in ("title", "location", "notes"))
      text += " ".join(event.get("attendees", ()))
      if (
          (first is None or _time(event["end"]) >= first)
          and (last is None or _time(event["start"]) < last)
          and wanted in text.casefold()
      ):
        service.show(event)


def create(options):
  event = {key: getattr(options, key) for key in FIELDS}
  event["end"] = options.end or options.start
  event["attendees"] = options.attendee or []
  with service.records(SERVICE) as events:
    event = {"id": service.next_id("e", events), **_checked(event)}
    added = {"action": "add", "id": event["id"], "event": event}
    service.change(SERVICE, added, [*events, event])
  print(f"Added {event['id']}: {event['title']}, {event['start']} to {event['end']}.")


def update(options):
  changes = {key: getattr(options, key) for key in FIELDS}
  changes["attendees"] = options.attendee
  changes = {key: value for key, value in changes.items() if value is not None}
  if not changes:
    raise service.Refused("nothing to change: give --title, --start or another")
  with service.records(SERVICE) as events:
    before = service.by_id(options.id, events)
    event = _checked({**before, **changes})
    service.change(
        SERVICE,
        {"action": "update", "id": options.id, "changes": changes, "event": event},
        [event if e is before else e for e in events],
    )
  print(f"Updated {options.id}: {', '.join(sorted(changes))}.")


def delete(options):
  with service.records(SERVICE) as events:
    event = service.by_id(options.id, events)
    deleted = {"action": "delete", "id": options.id, "event": event}
    service.change(SERVICE, deleted, [e for e in events if e is not event])
  print(f"Deleted {options.id}: {event['title']}.")


def _checked(event):
  if not event["title"].strip():
    raise service.Refused("the title is empty")
  if _time(event["end"]) < _time(event["start"]):
    raise service.Refused("the event ends before it starts")
  return event


def _time(value):
  try:
    time = datetime.fromisoformat(
        value[:-1] + "+00:00" if value[-1:] in "zZ" else value
    )
  except ValueError:
    raise service.Refused(
        f"{value[:40]!r} is no time: write 2026-01-05T09:00 or 2026-01-05"
    ) from None
  return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def main():
  parser = service.parser(
      "List and change the events of the calendar.",
      [
          "calendar list --from=2026-01-05 --to=2026-01-12",
          "calendar add --title=Review --start=2026-01-06T14:00 --end=2026-01-06T15:00",
          "calendar update e1 --start=2026-01-06T15:00 --end=2026-01-06T16:00",
          "calendar delete e1",
      ],
  )
  commands = parser.add_subparsers(dest="command", required=True)
  command = service.add(
      commands, "list", show_all, "List events by time, one JSON object a line."
  )
  command.add_argument(
      "--from", dest="first", metavar="TIME", help="only those that end at or after it"
  )
  command.add_argument(
      "--to", dest="last", metavar="TIME", help="only those that start before it"
  )
  command.add_argument(
      "--search", type=service.text, help="only those with these words"
  )
  for name, does, about, needed in (
      ("add", create, "Add an event.", True),
      ("update", update, "Change what is given of an event.", False),
  ):
    command = service.add(commands, name, does, about)
    if not needed:
      command.add_argument("id", help="its id, such as e1")
    empty = "" if needed else None
    command.add_argument(
        "--title", type=service.text, required=needed, help="its title"
    )
    command.add_argument(
        "--start", metavar="TIME", required=needed,
        help="when it starts: 2026-01-05T09:00, or a date for a whole day",
    )  # fmt: skip
    command.add_argument(
        "--end", metavar="TIME",
        help="when it ends" + (" (default: when it starts)" if needed else ""),
    )  # fmt: skip
    command.add_argument(
        "--location", type=service.text, default=empty, help="where it is"
    )
    command.add_argument(
        "--notes", type=service.text, default=empty, help="more about it"
    )
    command.add_argument(
        "--attendee", action="append", type=service.text,
        help="who takes part; may be given several times"
        + ("" if needed else ", and then replaces all"),
    )  # fmt: skip
  command = service.add(commands, "delete", delete, "Delete an event.")
  command.add_argument("id", help="its id, such as e1")
  service.run(parser)


if __name__ == "__main__":
  main()
