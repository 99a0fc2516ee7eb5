"""Qwen3-8B at 64K tokens with ClawGym's settings: the 4B's recipe and mesh.

YaRN takes the 32K that the model was trained on to 64K.
"""

from dataclasses import replace

from clawgym_jax.configs import sft_qwen3_4b_64k
from clawgym_jax.configs.base import SftConfig


def get_config() -> SftConfig:
  config = sft_qwen3_4b_64k.get_config()
  return replace(
      config, model=replace(config.model, source="Qwen/Qwen3-8B", yarn_factor=2.0)
  )
