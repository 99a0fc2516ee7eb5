"""AdamW whose learning rate is an argument of every step, and its schedule.

The schedule is plain Python, so the number of steps may be settled while the
run goes on (a time budget) without compiling anything again.
"""

from __future__ import annotations

import math

import jax
import optax

from clawgym_jax.configs.base import Optimizer


def transformation(config: Optimizer) -> optax.GradientTransformation:
  """Clipping, Adam and decoupled decay; the caller multiplies by -lr.

  Norm weights are not decayed.
  """
  return optax.chain(
      optax.clip_by_global_norm(config.clip_norm),
      optax.scale_by_adam(config.beta1, config.beta2, config.eps),
      optax.add_decayed_weights(config.weight_decay, mask=_decayed),
  )


def learning_rate(config: Optimizer, step: int, steps: int) -> float:
  """The rate of step `step` (from 0) of `steps`."""
  warmup = config.warmup_fraction * steps
  if step < warmup:
    return config.peak_lr * min(1.0, (step + 1) / warmup)
  if config.schedule == "constant":
    return config.peak_lr
  done = min(1.0, (step - warmup) / max(1.0, steps - 1 - warmup))
  left = 1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
  return config.peak_lr * (config.end_fraction + (1 - config.end_fraction) * left)


def _decayed(params):
  return jax.tree_util.tree_map_with_path(
      lambda path, _: "norm" not in jax.tree_util.keystr(path), params
  )
