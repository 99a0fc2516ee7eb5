"""Papers of a world that no request needs: name -> a file's name and its text.

They tell of the world's people, project and days, and ask for nothing.
"""

from __future__ import annotations

import datetime
import html
from collections.abc import Callable

from data_gen.compose.setting import Setting

Paper = Callable[[Setting], tuple[str, str]]

PAPERS: dict[str, Paper] = {}


def _paper(make: Paper) -> Paper:
  PAPERS[make.__name__.strip("_")] = make
  return make


def _earlier(draw: Setting, days: int) -> datetime.date:
  return draw.today - datetime.timedelta(days=draw.rng.randint(1, days))


@_paper
def _who_is_who(draw: Setting) -> tuple[str, str]:
  return "who-is-who.md", draw.team_note()


@_paper
def _week(draw: Setting) -> tuple[str, str]:
  return f"week-{draw.today.isoformat()}.md", draw.week_note()


@_paper
def _minutes(draw: Setting) -> tuple[str, str]:
  day = _earlier(draw, 40).isoformat()
  present = draw.rng.sample(draw.colleagues, 3)
  points = "\n".join(
      f"{number}. {draw.pool('meeting')}: {draw.pool('note_work')}"
      f" {draw.pool('about_work')} ({draw.rng.choice(present)})"
      for number in range(1, draw.rng.randint(3, 7))
  )
  return (
      f"minutes-{day}.md",
      f"# {draw.company}, minutes of {day}\n\nPresent: {', '.join(present)}\n\n"
      f"{points}\n\nRoom: {draw.pool('room')}. Next meeting in two weeks.\n",
  )


@_paper
def _letter(draw: Setting) -> tuple[str, str]:
  writer, day = draw.rng.choice(draw.colleagues), _earlier(draw, 90)
  return (
      f"letter-{writer.split()[-1].lower()}.txt",
      f"{draw.company}\n{draw.city}, {day.isoformat()}\n\n"
      f"Dear {draw.pool('client')},\n\nthank you for your call about"
      f" {draw.pool('about_customer')}. It was {draw.pool('note_work')}"
      f" {draw.pool('about_work')}, and {draw.rng.choice(draw.colleagues)} has your"
      " number.\n\n"
      f"Kind regards\n{writer}\n",
  )


@_paper
def _phones(draw: Setting) -> tuple[str, str]:
  rows = [
      f"{person},{draw.email(person)},+{draw.integer(30, 79)} 555"
      f" {draw.integer(1000, 9999)},{draw.pool('room')}"
      for person in draw.colleagues
  ]
  return "phones.csv", "\n".join(["name,email,phone,room", *rows, ""])


@_paper
def _done(draw: Setting) -> tuple[str, str]:
  lines = [
      f"- [x] {chore} ({draw.rng.choice(draw.colleagues)})"
      for chore in draw.words("chore", draw.rng.randint(3, 6))
  ]
  return "done-list.md", "\n".join([f"# Done for {draw.project}", "", *lines, ""])


@_paper
def _readme(draw: Setting) -> tuple[str, str]:
  return (
      "README.md",
      f"# {draw.project}\n\nPapers of {draw.company} in {draw.city}. Kept by"
      f" {draw.colleagues[0]} since {_earlier(draw, 400).isoformat()}.\n",
  )


@_paper
def _diary(draw: Setting) -> tuple[str, str]:
  lines = ["BEGIN:VCALENDAR", "VERSION:2.0", f"PRODID:-//{draw.domain}//diary//EN"]
  for number, meeting in enumerate(draw.words("meeting", draw.rng.randint(2, 5))):
    day = draw.today + datetime.timedelta(days=draw.rng.randint(-20, 12))
    start = f"{day:%Y%m%d}T{draw.rng.randint(8, 16):02d}3000"
    lines += [
        "BEGIN:VEVENT",
        f"UID:{number}-{start}@{draw.domain}",
        f"DTSTART:{start}",
        f"SUMMARY:{meeting}",
        f"LOCATION:{draw.pool('room')}",
        f"ORGANIZER:mailto:{draw.email(draw.rng.choice(draw.colleagues))}",
        "END:VEVENT",
    ]
  return "diary.ics", "\r\n".join([*lines, "END:VCALENDAR", ""])


@_paper
def _preferences(draw: Setting) -> tuple[str, str]:
  name = draw.word("service")
  keys = sorted(draw.words("key", 4))
  body = "".join(f"  {key}: {draw.integer(2, 900)}\n" for key in keys)
  return f"{name}-sample.yaml", f"# as {draw.colleagues[1]} had it\n{name}:\n{body}"


@_paper
def _script(draw: Setting) -> tuple[str, str]:
  width = draw.integer(20, 90)
  return (
      "wrap_text.py",
      f'"""Wraps a text to {width} columns; by {draw.rng.choice(draw.colleagues)}."""\n'
      "\nimport sys\nimport textwrap\n\n"
      f"for line in sys.stdin:\n  print(textwrap.fill(line, {width}))\n",
  )


@_paper
def _shell(draw: Setting) -> tuple[str, str]:
  return (
      "disk-free.sh",
      f"#!/bin/sh\n# {draw.company}, {draw.rng.choice(draw.colleagues)}\n"
      "# Prints how full this disk is.\n"
      "df -h . | tail -n 1\n",
  )


@_paper
def _page(draw: Setting) -> tuple[str, str]:
  people = "".join(f"<li>{html.escape(p)}</li>" for p in draw.colleagues)
  return (
      "about.html",
      f"<html><head><title>{draw.company}</title></head>\n<body><h1>{draw.company}</h1>"
      f"\n<p>At home in {draw.city}; at present busy with {draw.project}.</p>\n"
      f"<ul>{people}</ul></body></html>\n",
  )


@_paper
def _mail(draw: Setting) -> tuple[str, str]:
  sender, receiver = draw.rng.sample(draw.colleagues, 2)
  day = _earlier(draw, 60)
  return (
      f"mail-{sender.split()[0].lower()}-{day.isoformat()}.eml",
      f"From: {sender} <{draw.email(sender)}>\n"
      f"To: {receiver} <{draw.email(receiver)}>\n"
      f"Subject: {draw.pool('meeting')}\nMIME-Version: 1.0\n"
      "Content-Type: text/plain; charset=utf-8\n\n"
      f"Hello {receiver.split()[0]},\n\nyesterday's talk was {draw.pool('note_work')}"
      f" {draw.pool('about_work')}. By the way, {draw.pool('small_talk')}.\n\n"
      f"{sender.split()[0]}\n",
  )


@_paper
def _glossary(draw: Setting) -> tuple[str, str]:
  lines = [f"{name}\n  a client of {draw.company}" for name in draw.words("client", 4)]
  lines.append(f"{draw.project}\n  what {draw.colleagues[0]} leads")
  return "glossary.txt", "\n".join([*sorted(lines), ""])


def log_lines(draw: Setting, count: int) -> tuple[str, str]:
  """The log of a service that has nothing to do with the work."""
  service = draw.word("service")
  events = draw.words("log_event", 6)
  day = _earlier(draw, 30)
  number, step = draw.integer(100, 900), draw.rng.randint(1, 13)
  lines = []
  for at in range(count):
    minute, second = divmod(at * step, 60)
    hour, minute = divmod(minute, 60)
    later, hour = divmod(hour, 24)
    when = day + datetime.timedelta(days=later) if later else day
    event = events[(at * 7 + number) % 6]
    lines.append(
        f"{when} {hour:02d}:{minute:02d}:{second:02d} INFO {service} {event}"
        f" in {number + 4 * (at * at % 97)} ms\n"
    )
  return f"{service}.log", "".join(lines)
