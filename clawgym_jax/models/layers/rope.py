"""Rotary position embedding in Hugging Face's layout (halves, not pairs).

Source: arXiv:2104.09864; agrees with transformers' modeling_llama.py.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def rope_tables(
    positions: jax.Array, head_dim: int, theta: float
) -> tuple[jax.Array, jax.Array]:
  """positions [batch, time] -> cos and sin, float32 [batch, time, 1, head_dim / 2]."""
  exponent = jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim
  angles = positions[..., None, None].astype(jnp.float32) * theta**-exponent
  return jnp.cos(angles), jnp.sin(angles)


def apply_rope(x: jax.Array, tables: tuple[jax.Array, jax.Array]) -> jax.Array:
  """Rotates x [batch, time, heads, head_dim] by its positions; float32."""
  cos, sin = tables
  first, second = jnp.split(x, 2, axis=-1)
  return jnp.concatenate(
      [first * cos - second * sin, second * cos + first * sin], axis=-1
  )
