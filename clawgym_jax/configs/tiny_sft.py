"""Supervised fine-tuning of a tiny random model: seconds on one CPU."""

from clawgym_jax.configs.base import Data, Optimizer, Saving, SftConfig


def get_config() -> SftConfig:
  return SftConfig(
      data=Data(row_length=512, batch_rows=2),
      optimizer=Optimizer(peak_lr=1e-3),
      saving=Saving(every_steps=20),
  )
