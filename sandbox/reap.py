"""Removes sandboxes whose controller is gone: `python -m sandbox.reap`.

The kernel kills a sandbox with its controller, so there is rarely anything to
do. A sandbox whose controller lives, or can't be seen from here, is never
touched, whatever run it is of.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from clawgym_jax import cli
from sandbox.backends.labels import labelled


def reap() -> dict[str, int]:
  """Kills orphaned sandbox processes; counts killed, kept and refused."""
  counts = {"killed": 0, "kept": 0, "refused": 0}
  for pid, mark in labelled().items():
    if not mark.orphaned():
      counts["kept"] += 1
      continue
    try:
      os.kill(pid, signal.SIGKILL)
      counts["killed"] += 1
    except ProcessLookupError:
      continue
    except PermissionError:
      counts["refused"] += 1
  return counts


def main() -> dict[str, Any]:
  counts = reap()
  print(
      f"{counts['killed']} processes of dead runs killed, {counts['kept']} of living"
      f" ones left alone, {counts['refused']} belong to another user"
  )
  return counts


if __name__ == "__main__":
  cli.run(main)
