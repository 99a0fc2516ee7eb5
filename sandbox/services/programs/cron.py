#!/usr/bin/python3 -sEB
"""cron: scheduled jobs. They are kept and reported; the task's clock stands
still, so none ever comes due by itself, and `run` only records that it ran.
"""

from __future__ import annotations

import json
import os
import re
import service
from datetime import datetime

SERVICE = "cron"
FIELDS = (
    "name", "description", "schedule", "payload", "sessionTarget", "wakeMode",
    "delivery", "enabled", "deleteAfterRun", "agentId",
)  # fmt: skip
# The keys of each kind: those it needs, then those it may have.
SCHEDULES = {
    "at": (("at",), ()),
    "every": (("everyMs",), ("anchorMs",)),
    "cron": (("expr",), ("tz",)),
}
PAYLOADS = {
    "systemEvent": (("text",), ()),
    "agentTurn": (("message",), ("model", "thinking", "timeoutSeconds")),
}
ONCE = {
    "name": "once",
    "schedule": {"kind": "at", "at": "2026-01-06T09:00:00Z"},
    "payload": {"kind": "systemEvent", "text": "Call back"},
}
DELIVERIES = ("none", "announce", "webhook")
_NUMBERS = ("everyMs", "anchorMs", "timeoutSeconds")
_TARGET = re.compile(r"main|isolated|current|session:\S+")
# minute, hour, day of month, month, day of week: lowest, highest, names
_RANGES = (
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ()),
    (1, 12, "jan feb mar apr may jun jul aug sep oct nov dec".split()),
    (0, 7, "sun mon tue wed thu fri sat".split()),
)


def status(options):
  with service.records(SERVICE) as jobs:
    on = sum(_is_job(job) and job["enabled"] for job in jobs)
    service.show({"jobs": sum(map(_is_job, jobs)), "enabled": on})


def show_all(options):
  with service.records(SERVICE) as jobs:
    for job in jobs:
      if _is_job(job) and (options.all or job["enabled"]):
        service.show(job)


def create(options):
  given = options.job if options.job is not None else _from_flags(options)
  with service.records(SERVICE) as jobs:
    job = {"id": service.next_id("job-", jobs), **checked(given)}
    added = {"action": "add", "id": job["id"], "job": job}
    service.change(SERVICE, added, [*jobs, job])
  print(f"Added {job['id']}: {job['name']}.")


def update(options):
  patch = options.patch if options.patch is not None else _from_flags(options)
  if not patch:
    raise service.Refused("nothing to change: give --patch, --name or another")
  with service.records(SERVICE) as jobs:
    before = service.by_id(options.id, jobs)
    kept = {key: value for key, value in before.items() if key in FIELDS}
    job = {"id": options.id, **checked({**kept, **patch})}
    service.change(
        SERVICE,
        {"action": "update", "id": options.id, "patch": patch, "job": job},
        [job if j is before else j for j in jobs],
    )
  print(f"Updated {options.id}: {', '.join(sorted(patch))}.")


def remove(options):
  with service.records(SERVICE) as jobs:
    job = service.by_id(options.id, jobs)
    removed = {"action": "remove", "id": options.id, "job": job}
    service.change(SERVICE, removed, [j for j in jobs if j is not job])
  print(f"Removed {options.id}: {job['name']}.")


def run_now(options):
  with service.records(SERVICE) as jobs:
    job = service.by_id(options.id, jobs)
    if options.mode == "due" and not job["enabled"]:
      raise service.Refused(f"{options.id} is not due: it is off; use --mode=force")
    ran = {"action": "run", "id": options.id, "mode": options.mode}
    at = os.environ.get("CLAWGYM_NOW", "")
    record = {"run": options.id, "mode": options.mode, "at": at}
    service.change(SERVICE, ran, [*jobs, record])
  print(f"Ran {options.id}: {job['name']}.")


def runs(options):
  with service.records(SERVICE) as jobs:
    service.by_id(options.id, jobs)
    for record in jobs:
      if record.get("run") == options.id:
        service.show(record)


def wake(options):
  if not options.text.strip():
    raise service.Refused("the text is empty")
  service.report(
      SERVICE, {"action": "wake", "text": options.text, "mode": options.mode}
  )
  print(f"Woken ({options.mode}).")


def checked(job):
  """The job with its defaults, or `Refused`."""
  unknown = sorted(set(job) - set(FIELDS))
  if unknown:
    raise service.Refused(f"a job has no {', '.join(map(str, unknown))[:200]}")
  name = job.get("name")
  if not isinstance(name, str) or not name.strip():
    raise service.Refused("a job needs a name")
  _check_kind("schedule", job.get("schedule"), SCHEDULES)
  _check_kind("payload", job.get("payload"), PAYLOADS)
  _check_schedule(job["schedule"])
  event = job["payload"]["kind"] == "systemEvent"
  target = job.get("sessionTarget") or ("main" if event else "isolated")
  if not isinstance(target, str) or not _TARGET.fullmatch(target):
    raise service.Refused("sessionTarget is main, isolated, current or session:ID")
  if event != (target == "main"):
    raise service.Refused("a systemEvent goes to main, and nothing else does")
  delivery = job.get("delivery")
  if delivery is not None and (
      not isinstance(delivery, dict) or delivery.get("mode") not in DELIVERIES
  ):
    raise service.Refused(f"delivery needs a mode: {', '.join(DELIVERIES)}")
  if job.get("wakeMode") not in (None, "now", "next-heartbeat"):
    raise service.Refused("wakeMode is now or next-heartbeat")
  for key in ("enabled", "deleteAfterRun"):
    if not isinstance(job.get(key, True), bool):
      raise service.Refused(f"{key} is true or false")
  return {**job, "sessionTarget": target, "enabled": job.get("enabled", True)}


def _check_kind(name, value, kinds):
  if not isinstance(value, dict) or value.get("kind") not in kinds:
    raise service.Refused(f"{name} needs a kind: {', '.join(kinds)}")
  needed, possible = kinds[value["kind"]]
  for key in needed:
    if key not in value:
      raise service.Refused(f"{name} of kind {value['kind']} needs {key}")
  for key in sorted(set(value) - {"kind"}):
    if key not in needed + possible:
      raise service.Refused(f"{name} of kind {value['kind']} has no {key}")
    number = isinstance(value[key], (int, float)) and not isinstance(value[key], bool)
    if key in _NUMBERS and (not number or value[key] < 0):
      raise service.Refused(f"{name}.{key} is a number of at least 0")
    if key not in _NUMBERS and (not isinstance(value[key], str) or not value[key]):
      raise service.Refused(f"{name}.{key} is a text")


def _check_schedule(schedule):
  if schedule["kind"] == "at":
    at = schedule["at"]
    try:
      datetime.fromisoformat(at[:-1] + "+00:00" if at[-1] in "zZ" else at)
    except ValueError:
      raise service.Refused(f"{at[:40]!r} is no time: write 2026-01-05T09:00") from None
  elif schedule["kind"] == "every" and schedule["everyMs"] <= 0:
    raise service.Refused("schedule.everyMs is more than 0")
  elif schedule["kind"] == "cron":
    parts = schedule["expr"].split()
    if len(parts) != 5 or not all(map(_is_field, parts, _RANGES)):
      raise service.Refused(
          f"{schedule['expr'][:40]!r} is no cron expression: minute hour day month"
          " weekday, such as '0 9 * * 1-5'"
      )


def _is_field(text, values):
  low, high, names = values

  def number(word):
    if word.lower() in names:
      return low + names.index(word.lower())
    return int(word) if word.isdecimal() and word.isascii() else -1

  for item in text.split(","):
    item, slash, step = item.partition("/")
    if slash and not (step.isdecimal() and step.isascii() and int(step) > 0):
      return False
    if item == "*":
      continue
    first, dash, last = item.partition("-")
    ends = [number(first), number(last if dash else first)]
    if not low <= ends[0] <= ends[1] <= high:
      return False
  return True


def _is_job(record):
  return "run" not in record


def _from_flags(options):
  """The job, or the part of one, that single flags describe."""
  job = {}
  if options.name is not None:
    job["name"] = options.name
  schedules = {
      "at": {"at": options.at},
      "every": {"everyMs": options.every_ms},
      "cron": {"expr": options.cron},
  }
  for kind, keys in schedules.items():
    if None not in keys.values():
      job["schedule"] = {"kind": kind, **keys}
  if options.tz:
    job.setdefault("schedule", {})["tz"] = options.tz
  if options.message is not None:
    job["payload"] = {"kind": "agentTurn", "message": options.message}
  if options.event is not None:
    job["payload"] = {"kind": "systemEvent", "text": options.event}
  if options.target:
    job["sessionTarget"] = options.target
  if options.enabled is not None:
    job["enabled"] = options.enabled == "yes"
  return job


def _job_flags(command):
  command.add_argument("--name", type=service.text, help="its name")
  when = command.add_mutually_exclusive_group()
  when.add_argument("--at", metavar="TIME", help="once, at 2026-01-05T09:00 (UTC)")
  when.add_argument("--every-ms", type=int, metavar="MS", help="again and again")
  when.add_argument("--cron", metavar="EXPR", help="as in '0 9 * * 1-5'")
  command.add_argument("--tz", help="time zone of --cron, such as Europe/Berlin")
  what = command.add_mutually_exclusive_group()
  what.add_argument("--message", type=service.text, help="an agent's turn says this")
  what.add_argument("--event", type=service.text, help="a system event says this")
  command.add_argument(
      "--target", help="session: main, isolated, current or session:ID"
  )
  command.add_argument("--enabled", choices=("yes", "no"), help="whether it is on")


def main():
  parser = service.parser(
      "Keep scheduled jobs.",
      [
          "cron add --name=standup --cron='0 9 * * 1-5' --message='Post the agenda'",
          f"cron add --job='{json.dumps(ONCE)}'",
          "cron update job-1 --enabled=no",
          "cron list --all",
      ],
  )
  commands = parser.add_subparsers(dest="command", required=True)
  service.add(commands, "status", status, "How many jobs there are, as JSON.")
  command = service.add(
      commands, "list", show_all, "List the jobs that are on, one JSON object a line."
  )
  command.add_argument("--all", action="store_true", help="those that are off, too")
  command = service.add(commands, "add", create, "Add a job.")
  command.add_argument(
      "--job", type=service.json_object, metavar="JSON",
      help="the whole job: name, schedule, payload, sessionTarget, delivery, enabled",
  )  # fmt: skip
  _job_flags(command)
  command = service.add(commands, "update", update, "Change what is given of a job.")
  command.add_argument("id", help="its id, such as job-1")
  command.add_argument(
      "--patch", type=service.json_object, metavar="JSON", help="the parts that change"
  )
  _job_flags(command)
  command = service.add(commands, "remove", remove, "Remove a job.")
  command.add_argument("id", help="its id, such as job-1")
  command = service.add(commands, "run", run_now, "Run a job now.")
  command.add_argument("id", help="its id, such as job-1")
  command.add_argument(
      "--mode", choices=("due", "force"), default="force",
      help="due: only if it is on (default: force)",
  )  # fmt: skip
  command = service.add(commands, "runs", runs, "List the runs of a job.")
  command.add_argument("id", help="its id, such as job-1")
  command = service.add(commands, "wake", wake, "Wake the agent with a text.")
  command.add_argument("text", type=service.text, help="what to say")
  command.add_argument(
      "--mode", choices=("now", "next-heartbeat"), default="now", help="when"
  )
  service.run(parser)


if __name__ == "__main__":
  main()
