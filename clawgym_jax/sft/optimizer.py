"""Update rules whose learning rate is an argument of every step, and schedules.

The schedule is plain Python, so the number of steps may be settled while the
run goes on (a time budget) without compiling anything again. A weight is a
matrix [.., out, in], whatever is stacked before it; embeddings, the head,
routers, biases and norms are none to Muon, and norms are never decayed.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import optax

from clawgym_jax.configs.base import Optimizer

_MUON_RMS = 0.2  # of an update, as Adam's (arXiv:2502.16982): one rate fits both


def transformation(config: Optimizer) -> optax.GradientTransformation:
  """Clipping and the update rule; the caller multiplies by -lr.

  adamw: Adam with decoupled decay (arXiv:1711.05101). muon: matrices go by
  orthogonalised momentum (`beta1`), all else by Adam. adafactor: second moments of
  matrices as a row and a column (arXiv:1804.04235), no momentum, updates of RMS 1.
  """
  decay = optax.add_decayed_weights(config.weight_decay, mask=_decayed)
  if config.name == "adamw":
    rule = (optax.scale_by_adam(config.beta1, config.beta2, config.eps), decay)
  elif config.name == "muon":
    rule = (_muon(config), decay)
  else:
    rule = (optax.scale_by_factored_rms(), optax.clip_by_block_rms(1.0), decay)
  return optax.chain(optax.clip_by_global_norm(config.clip_norm), *rule)


def learning_rate(config: Optimizer, step: int, steps: int) -> float:
  """The rate of step `step` (from 0) of `steps`.

  wsd: warm-up, stable, and a last `decay_fraction` of the steps linearly down.
  """
  warmup = config.warmup_fraction * steps
  if step < warmup:
    return config.peak_lr * min(1.0, (step + 1) / warmup)
  if config.schedule == "constant":
    return config.peak_lr
  start = warmup
  if config.schedule == "wsd":
    start = max(warmup, (1 - config.decay_fraction) * steps - 1)
  done = min(1.0, max(0.0, (step - start) / max(1.0, steps - 1 - start)))
  left = (1 + math.cos(math.pi * done)) / 2 if config.schedule == "cosine" else 1 - done
  return config.peak_lr * (config.end_fraction + (1 - config.end_fraction) * left)


def _muon(config: Optimizer) -> optax.GradientTransformation:
  return optax.contrib.muon(
      -1.0,  # it would multiply by -lr itself
      beta=config.beta1,
      eps=config.eps,
      adam_b1=config.beta1,
      adam_b2=config.beta2,
      muon_weight_dimension_numbers=_matrices,
      consistent_rms=_MUON_RMS,
  )


def _matrices(params: Any) -> Any:
  """Where the inputs and outputs of a layer's matrices are; None for all else."""

  def axes(path, value):
    name = jax.tree_util.keystr(path)
    if "_proj" in name and "weight" in name:
      return optax.contrib.MuonDimensionNumbers(-1, -2)
    return None

  return jax.tree_util.tree_map_with_path(axes, params)


def _decayed(params: Any) -> Any:
  return jax.tree_util.tree_map_with_path(
      lambda path, _: "norm" not in jax.tree_util.keystr(path), params
  )
