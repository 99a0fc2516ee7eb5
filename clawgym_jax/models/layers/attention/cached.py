"""Attention of queries to the rows of a KV cache, one slot a position."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from clawgym_jax.models.cache import loaded
from clawgym_jax.models.layers.attention.scores import MASKED, dot_heads, fold, unfold

_BLOCK = 128
_CACHE_PARTS = 4


def cached_attention(
    query: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    positions: jax.Array,
    dtype: jnp.dtype,
    *,
    scale: float | None = None,
    window: jax.Array | None = None,
) -> jax.Array:
  """A query at position p sees slots 0..p of its cache row, the last `window` of them.

  query [batch, time, heads, dim], keys [batch, kv_heads, dim, slots] and values
  [batch, kv_heads, slots, dim] as the cache stores them, positions [batch,
  time] -> float32 [batch, time, heads, dim].

  Of the slots, the first quarter, half, three quarters or all are read, as the
  last real query needs. A query at the reserved last slot is padding, and gets
  what the slots read give it. `scale` of the scores: dim ** -0.5 where absent.
  """
  batch, time, heads, dim = query.shape
  slots = keys.shape[3]
  scale = dim**-0.5 if scale is None else scale
  query = (query.astype(jnp.float32) * scale).reshape(batch, time, keys.shape[1], -1, dim)
  query = query.astype(dtype).transpose(0, 2, 3, 1, 4)
  last = jnp.max(jnp.where(positions < slots - 1, positions, 0))
  step = -(-slots // _CACHE_PARTS)
  parts = [min(step * part, slots) for part in range(1, _CACHE_PARTS + 1)]
  outs = []
  for start in range(0, time, _BLOCK):
    rows = slice(start, min(start + _BLOCK, time))
    arguments = query[..., rows, :], keys, values, positions[:, rows]
    attend = [
        partial(_attend_cache, seen=seen, window=window, dtype=dtype)
        for seen in parts
    ]
    outs.append(jax.lax.switch(last // step, attend, *arguments))
  out = jnp.concatenate(outs, axis=3)
  return out.transpose(0, 3, 1, 2, 4).reshape(batch, time, heads, dim)


def _attend_cache(query, keys, values, positions, *, seen, window, dtype):
  """Attention of one block of queries to the first `seen` slots."""
  keys = loaded(keys[..., :seen]).astype(dtype)
  values = loaded(values[:, :, :seen]).astype(dtype)
  mask = jnp.arange(seen) <= positions[..., None]
  if window is not None:
    mask &= positions[..., None] - jnp.arange(seen) < window
  mask = jnp.tile(mask, (1, query.shape[2], 1))[:, None]
  scores = jnp.where(mask, dot_heads(fold(query), keys, 3, 2), MASKED)
  weights = jax.nn.softmax(scores, axis=-1).astype(dtype)
  return unfold(dot_heads(weights, values, 3, 2), query)
