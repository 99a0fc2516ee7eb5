"""A compilation in a process of its own; imports no jax."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from clawgym_jax.configs import base
from clawgym_jax.configs.base import RlConfig, SftConfig
from clawgym_jax.contracts.errors import UserError

_DEADLINE = 2 * 3600.0  # seconds, for all programs that one request compiles


def compiled(
    config: SftConfig | RlConfig,
    topology: str,
    step: str,
    *,
    layers: bool,
    deadline: float = _DEADLINE,
) -> dict[str, Any]:
  """The result of `measure.measured` in a process of its own; `UserError` as it has.

  The compiler is ended after `deadline` seconds, a `UserError` too.
  """
  request = {
      "kind": type(config).__name__,
      "keys": base.keys(config),
      "topology": topology,
      "step": step,
      "layers": layers,
  }
  try:
    done = subprocess.run(
        [sys.executable, "-m", "clawgym_jax.compile.child"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        timeout=deadline,
    )
  except subprocess.TimeoutExpired as error:
    raise UserError(
        f"the compiler was not done after {deadline:g} s and was ended: fewer layers"
        " or shorter rows compile sooner"
    ) from error
  lines = done.stdout.splitlines()
  if done.returncode or not lines:
    said = [line for line in done.stderr.splitlines() if line.startswith(("F", "jax"))]
    said = said or done.stderr.splitlines()[-3:]
    raise UserError(
        f"the compiler ended with status {done.returncode}: {' '.join(said[:3])}"
    )
  answer = json.loads(lines[-1])
  if "error" in answer:
    raise UserError(answer["error"])
  return answer["result"]
