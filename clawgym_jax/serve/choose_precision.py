"""Writes which compute dtype is faster on this machine, for programs that must agree.

  python -m clawgym_jax.serve.choose_precision --checkpoint=DIR --out=FILE

A trainer, its engine and the evaluations around them are comparable only if
they compute alike; whoever starts them measures once and hands each the answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.checkpoints import hf
from clawgym_jax.contracts.files import write_json
from clawgym_jax.serve import precision

_CHECKPOINT = flags.DEFINE_string(
    "checkpoint", None, "Hugging Face folder whose shapes are timed.", required=True
)
_OUT = flags.DEFINE_string("out", None, "JSON file to write.", required=True)
_ROWS = 512  # tokens of one product, between a decode step's and a training row's


def main() -> dict[str, Any]:
  config = hf.load_config(Path(_CHECKPOINT.value))
  dtype, reason = precision.choose("auto", config, _ROWS)
  result = {"compute_dtype": dtype.name, "reason": reason}
  write_json(Path(_OUT.value), result)
  return result


if __name__ == "__main__":
  cli.run(main)
