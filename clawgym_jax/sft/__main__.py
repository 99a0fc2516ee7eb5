"""Supervised fine-tuning.

  python -m clawgym_jax.sft --config=clawgym_jax/configs/demo_sft.py \\
    --config.data.chats=FILE --config.out=DIR

Stopped at any point (status 130 after Ctrl-C, 143 after SIGTERM), the same
command continues.
"""

import sys

from absl import flags

from clawgym_jax.configs import command
from clawgym_jax.configs.base import SftConfig

_PROFILE = flags.DEFINE_string(
    "profile_steps",
    "",
    "Steps FIRST-LAST to trace, into profile/ of the run's folder.",
    module_name=sys.argv[0],
)


def main(config: SftConfig):
  from clawgym_jax.parallel.host import keep_memory  # flags are checked before
  from clawgym_jax.sft.train import train  # jax loads

  keep_memory()
  return train(config, profile_steps=_PROFILE.value)


if __name__ == "__main__":
  command.run(main, SftConfig)
