"""Rotary position embedding in Hugging Face's layout (halves, not pairs).

Source: arXiv:2104.09864; agrees with transformers' modeling_llama.py.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from clawgym_jax.models.rope_scaling import RopeScaling

Tables = tuple[jax.Array, jax.Array]
"""Cosines and sines, float32 [batch, time, 1, head_dim / 2] each."""


def rope_tables(
    positions: jax.Array,
    head_dim: int,
    theta: float,
    scaling: RopeScaling | None = None,
) -> Tables:
  """positions [batch, time] -> their cosines and sines."""
  frequencies = theta ** -(np.arange(0, head_dim, 2) / head_dim)
  factor = 1.0
  if scaling is not None:
    frequencies, factor = scaling.scaled(frequencies, head_dim, theta)
  angles = positions[..., None, None].astype(jnp.float32) * frequencies.astype(
      np.float32
  )
  cos, sin = jnp.cos(angles), jnp.sin(angles)
  return (cos, sin) if factor == 1.0 else (cos * factor, sin * factor)


def apply_rope(x: jax.Array, tables: Tables) -> jax.Array:
  """Rotates x [batch, time, heads, head_dim] by its positions, in float32; as x."""
  cos, sin = tables
  first, second = jnp.split(x, 2, axis=-1)
  turned = first * cos - second * sin, second * cos + first * sin
  return jnp.concatenate([half.astype(x.dtype) for half in turned], axis=-1)
