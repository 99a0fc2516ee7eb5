"""What the programs of a sandbox share: reports, state, and how they end.

A side effect is reported to the controller first; only when it has said `ok`
does the new state, which is on the disk already, take the place of the old one,
and is the user told that it is done. Where anything fails nothing has happened. State
is one JSON list a service, made from the task's seed file at first use; one program at
a time may change it. Starting is most of what a program costs, so what is rarely
needed is imported late.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STATE = os.path.join(ROOT, "state")
REPORT_BYTES = 64 << 10
REPORT_SECONDS = 10.0


class Refused(Exception):
  """What was asked can't be done; the text says why."""


def parser(description, examples):
  """A parser of subcommands; `add` gives one of them, with its help."""
  main = argparse.ArgumentParser(
      description=description,
      epilog="examples:\n" + "\n".join(f"  {line}" for line in examples),
      formatter_class=argparse.RawDescriptionHelpFormatter,
      allow_abbrev=False,
  )
  return main


def add(commands, name, does, about):
  """Adds subcommand `name`, which calls `does` with the parsed arguments."""
  command = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
  command.set_defaults(does=does)
  return command


def text(value):
  """An argument as text that UTF-8 can hold."""
  return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def json_object(value):
  """An argument that is a JSON object."""
  try:
    found = json.loads(value)
    json.dumps(found, allow_nan=False)  # which the controller would not take
  except (ValueError, RecursionError):
    found = None
  if not isinstance(found, dict):
    raise argparse.ArgumentTypeError("not a JSON object")
  return found


def report(service, data):
  """Tells the controller; `Refused` unless it has taken the report."""
  import socket

  line = json.dumps({"service": service, "data": data}, ensure_ascii=False)
  raw = line.encode("utf-8", "replace") + b"\n"
  if len(raw) > REPORT_BYTES:
    raise Refused(f"too large: {len(raw)} bytes, of at most {REPORT_BYTES}")
  try:
    with socket.socket(socket.AF_UNIX) as channel:
      channel.settimeout(REPORT_SECONDS)
      channel.connect(os.environ.get("CLAWGYM_REPORT", "/run/sandbox/report"))
      channel.sendall(raw)
      answer = b""
      while not answer.endswith(b"\n") and len(answer) < 4096:
        data = channel.recv(4096)
        if not data:
          break
        answer += data
  except OSError as error:
    raise Refused(f"the service can't be reached: {error.strerror or error}") from None
  if answer != b"ok\n":
    said = answer.decode("utf-8", "replace").strip() or "no answer"
    raise Refused(f"the service did not take it: {said}")


@contextlib.contextmanager
def records(service):
  """The service's list, locked; `change` replaces it."""
  os.makedirs(STATE, exist_ok=True)
  with open(os.path.join(STATE, f".{service}.lock"), "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield _read(service)


def change(service, data, records):
  """Reports a side effect and replaces the service's list: both, or neither."""
  partial = os.path.join(STATE, f".{service}.json")
  with open(partial, "w", encoding="utf-8") as file:
    json.dump(records, file, ensure_ascii=False)
  report(service, data)
  os.replace(partial, os.path.join(STATE, f"{service}.json"))


def _read(service):
  for folder in (STATE, ROOT):
    path = os.path.join(folder, f"{service}.json")
    if os.path.exists(path):
      try:
        with open(path, encoding="utf-8") as file:
          found = json.load(file)
      except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is damaged: {error}") from None
      if not isinstance(found, list) or not all(isinstance(r, dict) for r in found):
        raise Refused(f"{path} is damaged: not a list of objects")
      return found
  return []


def next_id(letter, records):
  """The next of m1, m2, …, whatever was deleted meanwhile."""
  used = [str(record.get("id", "")) for record in records]
  numbers = [int(i[len(letter) :]) for i in used if _numbered(letter, i)]
  return f"{letter}{max(numbers, default=0) + 1}"


def _numbered(letter, identifier):
  digits = identifier[len(letter) :]
  return identifier.startswith(letter) and digits.isascii() and digits.isdigit()


def by_id(identifier, records):
  """The record of that id, or `Refused`."""
  for record in records:
    if record.get("id") == identifier:
      return record
  raise Refused(f"there is no {identifier}")


def show(record):
  """One record as one line."""
  print(json.dumps(record, ensure_ascii=False))


def run(main):
  """Parses the command line, does it, and exits with 1 where it was refused."""
  for stream in (sys.stdout, sys.stderr):
    stream.reconfigure(encoding="utf-8", errors="replace")
  for argument in sys.argv[1:]:
    if argument == "--":
      break
    if argument.endswith("=--"):  # of which Python 3.11 makes an empty list
      main.error("the value of an option can't be --")
  options = main.parse_args()
  try:
    options.does(options)
  except Refused as error:
    sys.exit(f"{main.prog}: {error}")
  except BrokenPipeError:
    os._exit(141)  # as a shell has it: nobody reads any more
  except OSError as error:
    sys.exit(f"{main.prog}: {error.filename or STATE}: {error.strerror}")
