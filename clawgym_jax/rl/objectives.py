"""Policy losses over per-token columns: pure functions of arrays of one shape.

Three log-prob columns stay apart. `rollout`: of the engine, when the token was
sampled. `old`: of the trainer, from the same weights before the update.
`current`: of the weights being trained. The ratio that is clipped is
current / old; old / rollout corrects what the two programs compute apart.
A position of weight 0 may hold anything, NaN included: it reaches neither a
value nor a gradient.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

_LOG_BOUND = 20.0  # of a log-ratio, before it is exponentiated


def ppo_clip(
    current: jax.Array,
    old: jax.Array,
    rollout: jax.Array,
    advantage: jax.Array,
    weight: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
    truncated_is: float,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """-sum of weight · w · min(r A, clip(r, 1 - low, 1 + high) A), and its sums.

  r = exp(current - old); w = min(exp(old - rollout), truncated_is) without a
  gradient (truncated importance sampling), or 1 where `truncated_is` is 0.
  Clip-higher: arXiv 2503.14476. The caller divides by its denominator.

  Returns:
    The sum, and sums over the trained tokens: ratio, clipped (share whose
    gradient the clip removed), is_truncated (w at its bound), mismatch
    (|old - rollout|).
  """
  live = weight > 0
  current, old, rollout, advantage = (
      jnp.where(live, value, 0.0) for value in (current, old, rollout, advantage)
  )
  ratio = _exp(current - old)
  clipped = jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
  gain = jnp.minimum(ratio * advantage, clipped * advantage)
  mismatch = jax.lax.stop_gradient(old - rollout)
  correction = jnp.ones_like(gain)
  if truncated_is:
    correction = jnp.minimum(_exp(mismatch), truncated_is)
  sums = {
      "ratio": jnp.sum(weight * ratio),
      "clipped": jnp.sum(weight * (clipped * advantage < ratio * advantage)),
      "is_truncated": jnp.sum(
          weight * ((_exp(mismatch) > truncated_is) & (truncated_is > 0))
      ),
      "mismatch": jnp.sum(weight * jnp.abs(mismatch)),
  }
  return -jnp.sum(weight * correction * gain), sums


def kl_k3(current: jax.Array, reference: jax.Array, weight: jax.Array) -> jax.Array:
  """Sum of weight · (e^x - x - 1), x = reference - current: the k3 estimate."""
  live = weight > 0
  x = jnp.where(live, reference, 0.0) - jnp.where(live, current, 0.0)
  return jnp.sum(weight * (_exp(x) - x - 1.0))


def _exp(log_ratio: jax.Array) -> jax.Array:
  return jnp.exp(jnp.clip(log_ratio, -_LOG_BOUND, _LOG_BOUND))
