"""Runs the whole life cycle on one machine.

  python -m launch.demo [--model=smollm2|tiny] [--out=demo]

Stopped at any point, the same command continues.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from launch.demo import stages

_MODEL = flags.DEFINE_enum(
    "model",
    "smollm2",
    ["smollm2", "tiny"],
    "smollm2: SmolLM2-135M-Instruct, pretrained. tiny: a Qwen3-shaped model from"
    " scratch, which tests the road and learns nothing worth scoring.",
)
_OUT = flags.DEFINE_string("out", "demo", "Folder for everything the run makes.")


def main() -> dict[str, Any]:
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
  os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
  settings = stages.SMOLLM2 if _MODEL.value == "smollm2" else stages.TINY
  return stages.Demo(settings, Path(_OUT.value)).run()


if __name__ == "__main__":
  cli.run(main)
