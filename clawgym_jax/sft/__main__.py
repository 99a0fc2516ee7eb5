"""Supervised fine-tuning.

  python -m clawgym_jax.sft --config=clawgym_jax/configs/demo_sft.py \\
    --config.data.chats=FILE --config.out=DIR

Stopped at any point (status 130 after Ctrl-C, 143 after SIGTERM), the same
command continues.
"""

from clawgym_jax.configs import command
from clawgym_jax.configs.base import SftConfig


def main(config: SftConfig):
  from clawgym_jax.parallel.host import keep_memory  # flags are checked before
  from clawgym_jax.sft.train import train  # jax loads

  keep_memory()
  return train(config)


if __name__ == "__main__":
  command.run(main, SftConfig)
