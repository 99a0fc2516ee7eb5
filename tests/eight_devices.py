"""Runs a test's cases on 8 simulated devices: in one process, which imports jax once."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any


def environment(devices: int) -> dict[str, str]:
  """For a process with so many devices; what else XLA is told stays."""
  count = f"--xla_force_host_platform_device_count={devices}"
  told = f"{os.environ.get('XLA_FLAGS', '')} {count}"
  return os.environ | {"XLA_FLAGS": told, "JAX_PLATFORMS": "cpu"}


def failures(
    function: Callable[..., None], cases: dict[str, list[Any]]
) -> dict[str, str]:
  """The traceback of `function(*cases[name])` by name, empty where it passed.

  `function` is one of a module's own; its arguments go over as JSON.
  """
  done = subprocess.run(
      [sys.executable, "-m", __name__, function.__module__, function.__name__],
      input=json.dumps(cases),
      env=environment(8),
      capture_output=True,
      text=True,
      timeout=840,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return json.loads(done.stdout.splitlines()[-1])


def _main(module: str, name: str) -> None:
  import jax

  assert jax.device_count() == 8
  function = getattr(importlib.import_module(module), name)
  found = {}
  for case, arguments in json.load(sys.stdin).items():
    try:
      function(*arguments)
      found[case] = ""
    except Exception:
      found[case] = traceback.format_exc()[-3000:]
  print(json.dumps(found))


if __name__ == "__main__":
  _main(*sys.argv[1:])
