"""Root-mean-square normalisation, always computed in float32."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from clawgym_jax import parallel


class RMSNorm(nnx.Module):
  """x / rms(x) * weight over the last axis; weight [size] or [layers, size]."""

  def __init__(
      self,
      size: int,
      *,
      eps: float,
      layers: int | None = None,
      param_dtype: jnp.dtype,
  ):
    self.eps = eps
    shape = (size,) if layers is None else (layers, size)
    self.weight = parallel.param(jnp.ones(shape, param_dtype), None)

  def __call__(self, x: jax.Array) -> jax.Array:
    """x [..., size] -> float32 [..., size]."""
    x = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + self.eps)
    return x * scale * self.weight[...].astype(jnp.float32)
