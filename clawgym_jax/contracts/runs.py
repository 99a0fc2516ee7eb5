"""A folder that a command fills, and continues when it is given again.

It has one writer at a time, and is of one set of settings: what would mix two
runs is refused, with what was and what is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_json


@contextlib.contextmanager
def only_writer(folder: Path, what: str, patience: float = 0.0) -> Iterator[None]:
  """Refuses to write to `folder` while another process does; ends with it.

  `what` names such a process for the one who is refused, after `patience`
  seconds: what was told to stop may still be saving. Creates the folder.
  """
  folder.mkdir(parents=True, exist_ok=True)
  end = time.monotonic() + patience
  with open(folder / ".lock", "w") as lock:
    while True:
      try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
      except BlockingIOError:
        if time.monotonic() >= end:
          raise UserError(
              f"another {what} is writing to {folder}; wait for it or use another"
              " folder"
          ) from None
      time.sleep(0.2)
    yield


def same_run(path: Path, identity: dict[str, Any]) -> None:
  """Writes `identity` to `path`; `UserError` where another one is there.

  `identity` maps what a person gave, by the name they gave it by, to its value.
  """
  if not path.exists():
    write_json(path, identity)
    return
  before = json.loads(path.read_text())
  now = json.loads(json.dumps(identity))
  changed = [
      f"{name} (was {json.dumps(before.get(name))}, is {json.dumps(now.get(name))})"
      for name in sorted(before.keys() | now.keys())
      if before.get(name) != now.get(name)
  ]
  if changed:
    raise UserError(
        f"{path.parent} holds a run with other settings: {'; '.join(changed)}. Give"
        " the same ones to continue it, or use another folder"
    )
