"""Tasks that are the same work, however it is asked for.

Two tasks with the same calls in their solutions and the same checks are one task in
other words: what is to be done and what is expected agree to the byte.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping

from clawgym_jax.contracts.task import Task
from sandbox.backends.base import gather


def work(task: Task) -> str:
  """A digest of the solution's calls and of the checks."""
  calls = [[dataclasses.asdict(call) for call in t.calls] for t in task.reference()]
  found = hashlib.sha256(json.dumps(calls, sort_keys=True).encode())
  for path, data in sorted(gather(task.checks).items()):
    found.update(path.encode() + b"\0" + hashlib.sha256(data).digest())
  return found.hexdigest()


def earlier(works: Mapping[str, str], others: Mapping[str, str] = {}) -> dict[str, str]:
  """Of names whose work comes again, all but the first in sorted order, with the name
  that has it first; those of `others` come before all."""
  first: dict[str, str] = {}
  for name, digest in sorted(others.items()):
    first.setdefault(digest, name)
  return {
      name: first[digest]
      for name, digest in sorted(works.items())
      if first.setdefault(digest, name) != name
  }


def cause(other: str) -> str:
  return f"duplicate: its solution and checks are those of {other}"
