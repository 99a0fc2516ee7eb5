"""Chores by the services of a sandbox: messages, calendar, scheduled jobs, web.

Their programs are `outbox`, `calendar`, `cron`, `websearch` and `webfetch`
(see `sandbox.services`). What is judged is what the services reported.
"""

from __future__ import annotations

import datetime
import json
from typing import Any

from data_gen.compose.chores.registry import (
    chore, digest, kin, lines, note, page, text,
)  # fmt: skip
from data_gen.compose.part import Part
from data_gen.compose.setting import Setting
from data_gen.draft import exec_call, read_call


def _effect(kind: str, service: str, **spec: Any) -> dict[str, Any]:
  return {"kind": kind, "service": service, "effects": 1, **spec}


def _message(to: list[str], subject: str, body: str, files: dict[str, bytes]) -> dict:
  return {
      "channel": "email", "to": to, "subject": subject, "body": body,
      "attachments": [
          {"name": name, "sha256": digest(data)} for name, data in files.items()
      ],
  }  # fmt: skip


def _earlier(setting: Setting) -> bytes:
  """The outbox as it was: messages of other days."""
  sent = [
      {"id": f"m{n}", "channel": "email", "to": [setting.email(person)],
       "subject": "Notes", "body": note(setting), "attachments": []}
      for n, person in enumerate(setting.colleagues[2:], 1)
  ]  # fmt: skip
  return json.dumps(sent).encode()


@chore("messaging", "outbox")
def send_message(setting: Setting) -> Part:
  """The address is in a file, the words are in the request."""
  who, subject = setting.colleagues[0], setting.word("meeting")
  body = f"{subject} is moved to room {setting.number(10, 900)}."
  path = f"contacts/{setting.word('topic')}.txt"
  others = setting.colleagues[1:]
  addresses = {
      p: f"{p.lower().replace(' ', '.')}{setting.integer(2, 99)}@{setting.domain}"
      for p in (who, *others)
  }
  said = setting.rng.choice((
      f"Send {who} an email, subject \"{subject}\", text \"{body}\"; the address is in"
      f" {path}.",
      f"Email {who} (see {path} for the address): subject \"{subject}\", and as text"
      f" \"{body}\" Once, and to nobody else.",
      f"Let {who} know by email with the subject \"{subject}\": \"{body}\" Take the"
      f" address from {path}.",
  ))  # fmt: skip
  address = f"\"$(sed -n 's/^{who}: //p' {path})\""
  return Part(
      said=said,
      calls=[
          read_call(path),
          exec_call(
              f"outbox send --to={address} --subject='{subject}' --body='{body}'"
          ),
          exec_call("outbox list"),
      ],
      workspace={path: text(f"{p}: {a}" for p, a in sorted(addresses.items()))},
      deliverables={
          "send_message": _effect(
              "sent", "outbox", messages=[_message([addresses[who]], subject, body, {})]
          )
      },
      done=f"{who} has the message",
      services={"outbox.json": _earlier(setting)},
      requires=("outbox",),
  )


@chore("messaging", "outbox")
def send_file(setting: Setting) -> Part:
  """A file goes to everybody of a list."""
  folder, subject = f"letters/{setting.word('topic')}", setting.word("meeting")
  path, people = f"{folder}/{setting.word('item')}.txt", f"{folder}/people.txt"
  body = f"Please read it before {setting.word('meeting')}."
  data = text(page(setting, 5))
  to = [
      f"{p.lower().replace(' ', '.')}{setting.integer(2, 99)}@{setting.domain}"
      for p in setting.colleagues[:3]
  ]
  said = setting.rng.choice((
      f"Send {path} as an attachment to all addresses in {people}, in one email with"
      f" the subject \"{subject}\" and the text \"{body}\"",
      f"Mail {path} to everyone listed in {people} (one message to all), subject"
      f" \"{subject}\", text \"{body}\"",
      f"One email to all of {people}: subject \"{subject}\", text \"{body}\", and"
      f" {path}"
      " attached.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          read_call(people),
          exec_call(
              f"outbox send $(sed 's/^/--to=/' {people}) --subject='{subject}'"
              f" --body='{body}' --attach={path}"
          ),
          exec_call("outbox list"),
      ],
      workspace={path: data, people: text(to)},
      deliverables={
          "send_file": _effect(
              "sent", "outbox",
              messages=[_message(to, subject, body, {path.rpartition("/")[2]: data})],
          )
      },  # fmt: skip
      done=f"{path} is sent",
      services={"outbox.json": _earlier(setting)},
      requires=("outbox",),
  )


def _events(setting: Setting, titles: list[str]) -> list[dict[str, Any]]:
  """One event a title, each at a full hour of a day of the next weeks."""
  events = []
  for number, title in enumerate(titles, 1):
    day = setting.today + datetime.timedelta(days=setting.integer(1, 40))
    hour = setting.integer(8, 16)
    events.append({
        "id": f"e{number}", "title": title, "start": f"{day}T{hour:02d}:00",
        "end": f"{day}T{hour + 1:02d}:00", "location": f"Room {setting.integer(2, 90)}",
        "notes": "", "attendees": [],
    })  # fmt: skip
  setting.data.shuffle(events)
  return events


@chore("calendar keeping", "calendar")
def add_event(setting: Setting) -> Part:
  *others, title = kin(setting, "meeting", 4, " ")
  room, day = setting.word("room"), setting.date()
  hour = setting.rng.randint(8, 16)
  start, end = f"{day}T{hour:02d}:30", f"{day}T{hour + 1:02d}:15"
  said = setting.rng.choice((
      f"Put \"{title}\" into the calendar: {day}, {start[-5:]} to {end[-5:]}, location"
      f" {room}.",
      f"Add an event \"{title}\" at {room} (as location) on {day} from {start[-5:]} to"
      f" {end[-5:]} to my calendar.",
      f"My calendar needs \"{title}\": {day}, starts {start[-5:]}, ends {end[-5:]},"
      f" location {room}.",
  ))  # fmt: skip
  event = {"title": title, "start": start, "end": end, "location": room}
  return Part(
      said=said,
      calls=[
          exec_call(f"calendar list --from={day}"),
          exec_call(
              f"calendar add --title='{title}' --start={start} --end={end}"
              f" --location='{room}'"
          ),
          exec_call(f"calendar list --search='{title}'"),
      ],
      workspace={},
      deliverables={
          "add_event": _effect("event", "calendar", action="add", id="", event=event)
      },
      done=f"\"{title}\" is in the calendar",
      services={"calendar.json": json.dumps(_events(setting, others)).encode()},
      requires=("calendar",),
  )


@chore("calendar keeping", "calendar")
def shift_event(setting: Setting) -> Part:
  """The event is found by its title, the new time is given."""
  titles = kin(setting, "meeting", 4, " ")
  title, day = setting.rng.choice(titles), setting.date()
  hour = setting.rng.randint(8, 16)
  start, end = f"{day}T{hour:02d}:15", f"{day}T{hour + 1:02d}:45"
  events = _events(setting, titles)
  meant = next(e for e in events if e["title"] == title)
  said = setting.rng.choice((
      f"Move \"{title}\" in my calendar to {day}, {start[-5:]} to {end[-5:]}.",
      f"\"{title}\" takes place on {day} from {start[-5:]} to {end[-5:]} now; change"
      " the event in the calendar.",
      f"Shift the calendar's \"{title}\" so that it starts {start[-5:]} and ends"
      f" {end[-5:]} on {day}. Keep the event, do not make a new one.",
  ))  # fmt: skip
  find = (
      f"calendar list --search='{title}' | python3 -c"
      " 'import json, sys; print(json.loads(sys.stdin.readline())[\"id\"])'"
  )
  return Part(
      said=said,
      calls=[
          exec_call(f"calendar list --search='{title}'"),
          exec_call(f"calendar update $({find}) --start={start} --end={end}"),
          exec_call(f"calendar list --search='{title}'"),
      ],
      workspace={},
      deliverables={
          "shift_event": _effect(
              "event", "calendar", action="update", id=meant["id"],
              event={"title": title, "start": start, "end": end},
          )
      },  # fmt: skip
      done=f"\"{title}\" is moved",
      services={"calendar.json": json.dumps(events).encode()},
      requires=("calendar",),
  )


@chore("calendar keeping", "calendar")
def cancel_event(setting: Setting) -> Part:
  titles = kin(setting, "meeting", 4, " ")
  title = setting.rng.choice(titles)
  events = _events(setting, titles)
  meant = next(e for e in events if e["title"] == title)
  said = setting.rng.choice((
      f"\"{title}\" is cancelled: delete it from my calendar.",
      f"Take \"{title}\" out of the calendar, and nothing else.",
      f"Remove the event \"{title}\" from my calendar.",
  ))  # fmt: skip
  find = (
      f"calendar list --search='{title}' | python3 -c"
      " 'import json, sys; print(json.loads(sys.stdin.readline())[\"id\"])'"
  )
  return Part(
      said=said,
      calls=[
          exec_call(f"calendar list --search='{title}'"),
          exec_call(f"calendar delete $({find})"),
          exec_call("calendar list"),
      ],
      workspace={},
      deliverables={
          "cancel_event": _effect(
              "event", "calendar", action="delete", id=meant["id"],
              event={"title": title},
          )
      },  # fmt: skip
      done=f"\"{title}\" is out of the calendar",
      services={"calendar.json": json.dumps(events).encode()},
      requires=("calendar",),
  )


def _job(number: int, name: str, setting: Setting) -> dict[str, Any]:
  expr = f"{setting.integer(0, 58)} {setting.integer(1, 22)} * * *"
  return {
      "id": f"job-{number}", "name": name, "enabled": True, "sessionTarget": "isolated",
      "schedule": {"kind": "cron", "expr": expr},
      "payload": {"kind": "agentTurn", "message": note(setting)},
  }  # fmt: skip


@chore("scheduling", "cron")
def add_job(setting: Setting) -> Part:
  *others, name = (name.lower() for name in kin(setting, "project", 4))
  hour, minute = setting.number(1, 22), setting.rng.randint(1, 58)
  expr = f"{minute} {hour} * * 1-5"
  message = f"{setting.word('chore')} for {setting.word('client')}"
  said = setting.rng.choice((
      f"Schedule a job {name} that says \"{message}\" to the agent at"
      f" {hour}:{minute:02d} from Monday to Friday (cron {expr}).",
      f"Set up the cron job {name}, schedule {expr}, with the message \"{message}\"",
      f"Every weekday at {hour}:{minute:02d} ({expr}) a job named {name} should send"
      f" the agent \"{message}\": add it.",
  ))  # fmt: skip
  job = {
      "name": name, "enabled": True, "schedule": {"kind": "cron", "expr": expr},
      "payload": {"kind": "agentTurn", "message": message},
  }  # fmt: skip
  seeds = [_job(n, other, setting) for n, other in enumerate(others, 1)]
  return Part(
      said=said,
      calls=[
          exec_call("cron list"),
          exec_call(f"cron add --name={name} --cron='{expr}' --message='{message}'"),
          exec_call("cron list"),
      ],
      workspace={},
      deliverables={"add_job": _effect("job", "cron", actions=["add"], id="", job=job)},
      done=f"{name} is scheduled",
      services={"cron.json": json.dumps(seeds).encode()},
      requires=("cron",),
  )


@chore("scheduling", "cron")
def job_off(setting: Setting) -> Part:
  """A job is switched off, not removed; its id depends on the records."""
  names = [name.lower() for name in kin(setting, "project", 4)]
  off = setting.rng.choice(names)
  shuffled = setting.data.sample(names, len(names))
  seeds = [_job(n, name, setting) for n, name in enumerate(shuffled, 1)]
  meant = next(job for job in seeds if job["name"] == off)
  said = setting.rng.choice((
      f"Switch the scheduled job {off} off, but keep it.",
      f"The cron job {off} should pause: disable it, do not remove it.",
      f"Turn off the job {off} in the schedule; it stays there.",
  ))  # fmt: skip
  find = (
      "cron list | python3 -c 'import json, sys; print(*[j[\"id\"] for j in"
      f" map(json.loads, sys.stdin) if j[\"name\"] == \"{off}\"])'"
  )
  return Part(
      said=said,
      calls=[
          exec_call("cron list"),
          exec_call(f"cron update $({find}) --enabled=no"),
          exec_call("cron list --all"),
      ],
      workspace={},
      deliverables={
          "job_off": _effect(
              "job", "cron", actions=["update"], id=meant["id"],
              job={"name": off, "enabled": False, "schedule": meant["schedule"],
                   "payload": meant["payload"]},
          )
      },  # fmt: skip
      done=f"{off} is off",
      services={"cron.json": json.dumps(seeds).encode()},
      requires=("cron",),
  )


@chore("web lookup", "web")
def look_up(setting: Setting) -> Part:
  """A figure on one of several pages is written down."""
  clients = kin(setting, "client", 4, " ")
  meant, path = setting.rng.choice(clients), f"answers/{setting.word('topic')}.txt"
  pages, answer = [], ""
  for client in clients:
    fee, year = setting.integer(20, 900), setting.integer(1950, 2020)
    if client == meant:
      answer = str(fee)
    rows = f"<tr><td>Entry fee</td><td>{fee}</td></tr>"
    rows += f"<tr><td>Founded</td><td>{year}</td></tr>"
    pages.append({
        "url": f"https://{client.lower().replace(' ', '-')}.example.com/facts",
        "html": f"<html><head><title>{client} facts</title></head><body>"
        f"<h1>{client}</h1><p>{note(setting)}.</p><table>{rows}</table></body></html>",
    })  # fmt: skip
  setting.data.shuffle(pages)
  url = f"https://{meant.lower().replace(' ', '-')}.example.com/facts"
  said = setting.rng.choice((
      f"Find the Entry fee of {meant} on the web and write the number alone to {path}.",
      f"What does {meant} give as Entry fee on its page of facts? Look it up on the web"
      f" and save just the number in {path}.",
      f"Look up {meant} on the web; its Entry fee, only the number, goes to {path}.",
  ))  # fmt: skip
  return Part(
      said=said,
      calls=[
          exec_call(f"websearch {meant} facts"),
          exec_call(f"webfetch {url}"),
          exec_call(
              f"mkdir -p answers && webfetch {url} | grep 'Entry fee'"
              f" | grep -o '[0-9][0-9]*' > {path}"
          ),
          read_call(path),
      ],
      workspace={},
      deliverables={"look_up": lines(path, [answer])},
      done=f"the fee is in {path}",
      services={"web.jsonl": b"\n".join(json.dumps(p).encode() for p in pages)},
      requires=("web",),
  )
