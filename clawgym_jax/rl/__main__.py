"""Reinforcement learning.

  python -m clawgym_jax.rl --config=clawgym_jax/configs/demo_rl.py \\
    --config.rollouts.tasks=DIR --config.model.source=DIR --config.out=DIR

Stopped at any point (status 130 after Ctrl-C, 143 after SIGTERM), the same
command continues.
"""

from clawgym_jax.configs import command
from clawgym_jax.configs.base import RlConfig


def main(config: RlConfig):
  from clawgym_jax.parallel.host import keep_memory  # flags are checked before
  from clawgym_jax.rl.train import train  # jax loads

  keep_memory()
  return train(config)


if __name__ == "__main__":
  command.run(main, RlConfig)
