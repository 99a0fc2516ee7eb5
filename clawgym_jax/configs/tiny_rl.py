"""Reinforcement learning of a tiny model: the whole loop in a minute on a CPU."""

from clawgym_jax.configs.base import Objective, Optimizer, RlConfig, Rollouts, Saving


def get_config() -> RlConfig:
  return RlConfig(
      rollouts=Rollouts(
          groups_per_step=2,
          samples_per_group=2,
          concurrency=4,
          slots=4,
          max_len=512,
          max_tokens=32,
          max_turns=2,
          step_seconds=300.0,
      ),
      objective=Objective(),
      optimizer=Optimizer(peak_lr=1e-4, schedule="constant", warmup_fraction=0.0),
      saving=Saving(every_steps=1),
      row_length=1024,
      steps=2,
  )
