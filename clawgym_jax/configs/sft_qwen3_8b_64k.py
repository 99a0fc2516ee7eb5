"""Qwen3-8B at 64K tokens with ClawGym's settings.

128 trajectories a step, of 18.7K tokens in the mean, are 40 rows of 64K; 3 epochs at
1e-5, saved every 80 steps. Schedule and betas are OpenRLHF's defaults. The mesh is
for 32 chips (v5p-64): a row is on 4 of them. YaRN takes the 32K that the
model was trained on to 64K.
"""

from clawgym_jax.configs.base import (
    Data,
    Mesh,
    ModelSource,
    Optimizer,
    Saving,
    SftConfig,
)


def get_config() -> SftConfig:
  return SftConfig(
      model=ModelSource(
          source="Qwen/Qwen3-8B",
          compute_dtype="bfloat16",
          remat="full",
          yarn_factor=2.0,
      ),
      data=Data(row_length=65536, batch_rows=40),
      optimizer=Optimizer(peak_lr=1e-5, warmup_fraction=0.03),
      mesh=Mesh(fsdp=8, context=4),
      saving=Saving(every_steps=80, keep_every=160),
      micro_batches=5,
      epochs=3.0,
  )
