"""What a run's step takes on TPUs that are not here, or which mesh suits them.

  python -m clawgym_jax.compile --config=FILE --topology=v5p-64 [--search] [--json]

Needs the package libtpu (extra `aot`) and no TPU. Every compilation is a process
of its own; a large model's takes minutes.
"""

from __future__ import annotations

from typing import Any

from absl import flags

from clawgym_jax.compile import report, search
from clawgym_jax.compile.process import compiled
from clawgym_jax.configs import command
from clawgym_jax.configs.base import RlConfig, SftConfig
from clawgym_jax.contracts.errors import UserError

_TOPOLOGY = flags.DEFINE_string(
    "topology", None, "Cloud TPU's name of a slice, v5p-64, or its shape, v5p:2x4x4."
)
_STEP = flags.DEFINE_enum(
    "step",
    None,
    ["sft", "rl", "decode"],
    "What to compile; by default what the config trains. decode is the rollout"
    " engine's of a config for rl.",
)
_LAYERS = flags.DEFINE_bool(
    "layers",
    True,
    "Also compile two unrolled depths: what a layer moves, and the time.",
)
_SEARCH = flags.DEFINE_bool(
    "search", False, "Try meshes, remat and micro-batches, and rank those that fit."
)


def main(config: SftConfig | RlConfig) -> dict[str, Any]:
  if not _TOPOLOGY.value:
    raise UserError("say what to compile for: --topology=v5p-64")
  step = _STEP.value or ("sft" if isinstance(config, SftConfig) else "rl")
  if (step == "sft") != isinstance(config, SftConfig):
    raise UserError(f"--step={step} is no step of a {type(config).__name__}")
  if _SEARCH.value:
    if step == "decode":
      raise UserError("--search is for training: decode runs on one device")
    result = search.ranked(config, _TOPOLOGY.value, step, compiled)
    report.show_ranking(result)
    return result
  result = compiled(config, _TOPOLOGY.value, step, layers=_LAYERS.value)
  report.show(result)
  return result


if __name__ == "__main__":
  command.run(main, SftConfig, RlConfig)
