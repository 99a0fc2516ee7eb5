"""Running eval.run as a person does, and an engine for it to ask."""

import contextlib
import json
import subprocess
import sys

from tests.gateway import engine as fake

DEADLINE = 120  # seconds for one command


def command(out, suite, **flags):
  flags = {"out": out, "suite": suite, "json": True} | flags
  return [sys.executable, "-m", "eval.run", *(f"--{k}={v}" for k, v in flags.items())]


def run(out, suite, **flags):
  """The finished process and its summary, None where it gave none."""
  done = subprocess.run(
      command(out, suite, **flags), capture_output=True, text=True, timeout=DEADLINE
  )
  last = (done.stdout.strip().splitlines() or [""])[-1]
  return done, json.loads(last) if last.startswith("{") else None


@contextlib.contextmanager
def engine():
  """A scripted engine that answers at its `url`."""
  made = fake.Engine(fake.tokenizer())
  with fake.serving(made.app) as url:
    made.url = url
    yield made
