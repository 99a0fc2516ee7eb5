#!/usr/bin/python3 -sEB
"""outbox: messages that the agent sends, by any channel.

A message is sent when the controller has it; nothing is sent twice unless
asked twice. Attachments are told by name, size and SHA-256.
"""

from __future__ import annotations

import os
import re
import stat
import sys

import service

SERVICE = "outbox"
CHANNEL = "email"


def send(options):
  message = {
      "channel": options.channel.lower(),
      "to": options.to,
      "subject": options.subject,
      "body": _body(options),
      "attachments": [_attachment(path) for path in options.attach],
  }
  if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", message["channel"]):
    raise service.Refused(f"no channel is called {options.channel[:40]!r}")
  if not all(to.strip() for to in options.to):
    raise service.Refused("a recipient is empty")
  if not message["body"] and not message["attachments"]:
    raise service.Refused("the message is empty: give --body or --attach")
  for key in ("reply_to", "thread"):
    if getattr(options, key):
      message[key] = getattr(options, key)
  if options.silent:
    message["silent"] = True
  whom = f"by {message['channel']} to {', '.join(message['to'])}"
  if options.dry_run:
    print(f"Would send {whom}; nothing was sent.")
    return
  with service.records(SERVICE) as messages:
    message = {"id": service.next_id("m", messages), **message}
    service.change(SERVICE, {"action": "send", **message}, [*messages, message])
  print(f"Sent {message['id']} {whom}.")


def show_all(options):
  with service.records(SERVICE) as messages:
    for message in messages:
      if options.channel in (None, message.get("channel")):
        service.show(message)


def show_one(options):
  with service.records(SERVICE) as messages:
    service.show(service.by_id(options.id, messages))


def _body(options):
  if options.body_file is None:
    return options.body
  try:
    if options.body_file == "-":
      data = sys.stdin.buffer.read(service.REPORT_BYTES + 1)
    else:
      with open(options.body_file, "rb") as file:
        data = file.read(service.REPORT_BYTES + 1)
  except OSError as error:
    raise service.Refused(f"{options.body_file}: {error.strerror}") from None
  return data.decode("utf-8", "replace")


def _attachment(path):
  import hashlib

  digest, size = hashlib.sha256(), 0
  try:
    with open(path, "rb", opener=_without_waiting) as file:
      if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise service.Refused(f"{path} is not a regular file")
      while True:
        data = file.read(1 << 20)
        if not data:
          break
        digest.update(data)
        size += len(data)
  except OSError as error:
    raise service.Refused(f"{path}: {error.strerror}") from None
  name = service.text(os.path.basename(path))
  return {"name": name, "bytes": size, "sha256": digest.hexdigest()}


def _without_waiting(path, flags):
  return os.open(path, flags | os.O_NONBLOCK)


def main():
  parser = service.parser(
      "Send messages and list what was sent.",
      [
          "outbox send --to=ada@example.com --subject='Report' --body='Done.'",
          "outbox send --channel=slack --to='#team' --body-file=note.md",
          "outbox send --to=a@example.com --to=b@example.com --body=Hi --attach=x.pdf",
          "outbox list",
      ],
  )
  commands = parser.add_subparsers(dest="command", required=True)
  command = service.add(commands, "send", send, "Send one message.")
  command.add_argument(
      "--to", action="append", required=True, type=service.text,
      help="recipient: an address, a name or #channel; may be given several times",
  )  # fmt: skip
  command.add_argument(
      "--channel", default=CHANNEL, type=service.text,
      help=f"email, slack, telegram, sms and such (default: {CHANNEL})",
  )  # fmt: skip
  command.add_argument("--subject", default="", type=service.text, help="its subject")
  body = command.add_mutually_exclusive_group()
  body.add_argument("--body", default="", type=service.text, help="its text")
  body.add_argument("--body-file", help="a file that holds its text; - is the input")
  command.add_argument(
      "--attach", action="append", default=[], metavar="FILE",
      help="a file to send with it; may be given several times",
  )  # fmt: skip
  command.add_argument(
      "--reply-to", default="", type=service.text, help="id of the message it answers"
  )
  command.add_argument(
      "--thread", default="", type=service.text, help="id of the thread it belongs to"
  )
  command.add_argument("--silent", action="store_true", help="without a notification")
  command.add_argument(
      "--dry-run", action="store_true", help="check it, but send nothing"
  )
  command = service.add(
      commands, "list", show_all, "List sent messages, one JSON object a line."
  )
  command.add_argument("--channel", help="only those sent by this channel")
  command = service.add(commands, "show", show_one, "Show one message as JSON.")
  command.add_argument("id", help="its id, such as m1")
  service.run(parser)


if __name__ == "__main__":
  main()
