"""Kinds of a person's day: calendar, contacts, mail and daily notes.

A record's fields stand in the text of an event, a mail or a note, one
`name: value` a line; dates and subjects around them agree with the record.
"""

from __future__ import annotations

import datetime
import re

from data_gen.compose.kinds.kind import (
    Files,
    Kind,
    by_date,
    dated,
    days,
    one_file,
    records,
    title,
)
from data_gen.compose.table import Table

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def fields(record: dict[str, str]) -> str:
  """The record as `name: value` lines."""
  return "".join(f"{key}: {value}\n" for key, value in record.items())


def _folded(lines: list[str]) -> bytes:
  """Lines of iCalendar and vCard: 75 bytes at most, a blank before the rest.

  RFC 5545, section 3.1. No character is cut.
  """
  folded = bytearray()
  for line in lines:
    rest, room = line.encode(), 75
    while len(rest) > room:
      cut = room
      while rest[cut] & 0xC0 == 0x80:
        cut -= 1
      folded += rest[:cut] + b"\r\n "
      rest, room = rest[cut:], 74
    folded += rest + b"\r\n"
  return bytes(folded)


def _escaped(text: str) -> str:
  return re.sub(r"([\\,;])", r"\\\1", text).replace("\n", "\\n")


def _ics(table: Table, name: str) -> bytes:
  lines = ["BEGIN:VCALENDAR", "VERSION:2.0", f"PRODID:-//{name}//EN"]
  for number, (record, day) in enumerate(zip(records(table), days(table)), 1):
    first = next(iter(record.values()))
    lines += [
        "BEGIN:VEVENT",
        f"UID:{name}-{number}@calendar.example",
        f"DTSTAMP:{day:%Y%m%d}T080000Z",
        f"DTSTART;VALUE=DATE:{day:%Y%m%d}",
        f"SUMMARY:{_escaped(first)}",
        f"DESCRIPTION:{_escaped(fields(record))}",
        "END:VEVENT",
    ]
  return _folded([*lines, "END:VCALENDAR"])


def _vcard(table: Table, name: str) -> bytes:
  lines = []
  for record in records(table):
    first = _escaped(next(iter(record.values())))
    lines += ["BEGIN:VCARD", "VERSION:3.0", f"N:{first};;;;", f"FN:{first}"]
    for key, value in record.items():
      lines.append(f"X-{key.upper().replace('_', '-')}:{_escaped(value)}")
    lines.append("END:VCARD")
  return _folded(lines)


def _upright(table: Table) -> bool:
  """vCard's names have hyphens and no case."""
  return all(re.fullmatch("[a-z][a-z0-9_]*", name) for name in table.names)


def _mails(table: Table, name: str) -> list[tuple[datetime.date, str]]:
  """A mail a record, by date."""
  mails = []
  table = by_date(table)
  for number, (record, day) in enumerate(zip(records(table), days(table)), 1):
    hour = f"{8 + number % 9:02d}:{number % 60:02d}:00 +0000"
    sent = f"{_DAYS[day.weekday()]}, {day.day:02d} {_MONTHS[day.month - 1]} {day.year}"
    mails.append(
        (
            day,
            f"From: {name}@desk.example\nTo: office@desk.example\n"
            f"Subject: {name} {number}\nDate: {sent} {hour}\n"
            f"Message-ID: <{number}.{day:%Y%m%d}@desk.example>\nMIME-Version: 1.0\n"
            "Content-Type: text/plain; charset=utf-8\n"
            f"Content-Transfer-Encoding: 8bit\n\n{fields(record)}",
        )
    )
  return mails


def _eml(table: Table, source: str) -> Files:
  name = title(source)
  return {
      f"{source}/{name}-{number:04d}.eml": mail.encode()
      for number, (_, mail) in enumerate(_mails(table, name), 1)
  }


def _mbox(table: Table, name: str) -> str:
  return "".join(
      f"From {name}@desk.example {_DAYS[day.weekday()]} {_MONTHS[day.month - 1]}"
      f" {day.day:2d} 08:00:00 {day.year}\n"
      + mail.replace("\nFrom ", "\n>From ")
      + "\n"
      for day, mail in _mails(table, name)
  )


def _notes(table: Table, source: str) -> Files:
  """memory/YYYY-MM-DD.md: what came up on a day, a section a record."""
  table, name = by_date(table), title(source)
  pages: dict[datetime.date, list[str]] = {}
  for record, day in zip(records(table), days(table)):
    page = pages.setdefault(day, [f"# {day.isoformat()}\n"])
    items = "".join(f"- {line}\n" for line in fields(record).splitlines())
    page.append(f"\n## {name} {len(page)}\n{items}")
  return {
      f"{source}/{day.isoformat()}.md": "".join(page).encode()
      for day, page in pages.items()
  }


_FIELDS = 'dict(l.split(": ", 1) for l in {text}.splitlines() if ": " in l)'
_UNFOLD = (
    'import re\n'
    'text = open("{path}", encoding="utf-8").read().replace("\\n ", "")\n'
    'plain = lambda t: re.sub(r"\\\\(.)", lambda m: m[1].replace("n", "\\n"), t)\n'
)  # fmt: skip

MAILS = (
    Kind(
        "ics", ".ics", "calendar file", one_file(_ics),
        _UNFOLD
        + 'found = [plain(t) for t in re.findall("^DESCRIPTION:(.*)$", text, re.M)]\n'
        + f'rows = [{_FIELDS.format(text="t")} for t in found]',
        fits=dated,
    ),
    Kind(
        "vcard", ".vcf", "vCard file", one_file(_vcard),
        _UNFOLD
        + 'rows = []\n'
        'for line in text.splitlines():\n'
        '  key, value = line.split(":", 1)\n'
        '  if key == "BEGIN":\n'
        '    rows.append({{}})\n'
        '  if key.startswith("X-"):\n'
        '    rows[-1][key[2:].lower().replace("-", "_")] = plain(value)',
        fits=_upright,
    ),
    Kind(
        "eml", "", "folder of mails", _eml,
        'import email, glob\n'
        'rows = []\n'
        'for name in sorted(glob.glob("{path}/*.eml")):\n'
        '  mail = email.message_from_binary_file(open(name, "rb"))\n'
        '  text = mail.get_payload(decode=True).decode()\n'
        f'  rows.append({_FIELDS.format(text="text")})',
        look="ls {path} && cat {path}/* | head -n 40",
        fits=dated, order=by_date, atomics=("mail reading",),
    ),
    Kind(
        "mbox", ".mbox", "mailbox file", one_file(_mbox),
        'import mailbox\n'
        'mails = mailbox.mbox("{path}", create=False)\n'
        'texts = [mail.get_payload(decode=True).decode() for mail in mails]\n'
        f'rows = [{_FIELDS.format(text="t")} for t in texts]',
        fits=dated, order=by_date, atomics=("mail reading",),
    ),
    Kind(
        "notes", "", "folder of daily notes", _notes,
        'import glob\n'
        'rows = []\n'
        'for name in sorted(glob.glob("{path}/*.md")):\n'
        '  for line in open(name, encoding="utf-8"):\n'
        '    if line.startswith("## "):\n'
        '      rows.append({{}})\n'
        '    if line.startswith("- "):\n'
        '      key, value = line[2:].rstrip("\\n").split(": ", 1)\n'
        '      rows[-1][key] = value',
        look="ls {path} && cat {path}/* | head -n 40",
        fits=dated, order=by_date, atomics=("memory recall",),
    ),
)  # fmt: skip
