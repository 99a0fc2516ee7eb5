"""Root-mean-square normalisation, always computed in float32."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from clawgym_jax import parallel


class RMSNorm(nnx.Module):
  """x / rms(x) * (offset + weight) over the last axis; weight [size] or [layers, size].

  `offset` is 0, or 1 where the weights are kept around zero (Gemma). Either
  way the factor starts at 1.
  """

  def __init__(
      self,
      size: int,
      *,
      eps: float,
      offset: int = 0,
      layers: int | None = None,
      param_dtype: jnp.dtype,
  ):
    self.eps = eps
    self.offset = offset
    shape = (size,) if layers is None else (layers, size)
    self.weight = parallel.param(jnp.full(shape, 1 - offset, param_dtype), None)

  def __call__(self, x: jax.Array) -> jax.Array:
    """x [..., size] -> float32 [..., size]."""
    x = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + self.eps)
    weight = self.weight[...].astype(jnp.float32)
    return x * scale * (weight + self.offset if self.offset else weight)
