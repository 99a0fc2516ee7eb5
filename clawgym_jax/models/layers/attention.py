"""Attention under the mask j <= i < end[j], and attention into a KV cache."""

from __future__ import annotations

import jax
import jax.numpy as jnp

_MASKED = -1e30


def tree_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    end: jax.Array,
    dtype: jnp.dtype,
) -> jax.Array:
  """Query i sees key j if and only if j <= i < end[j].

  query [batch, time, heads, dim], key and value [batch, time, kv_heads, dim],
  end int32 [batch, time] -> float32 [batch, time, heads, dim].
  """
  batch, time, heads, dim = query.shape
  groups = heads // key.shape[2]
  i = jnp.arange(time)[:, None]
  j = jnp.arange(time)[None, :]
  mask = (j <= i) & (i < end[:, None, :])
  query = query.reshape(batch, time, -1, groups, dim)
  scores = _einsum("btkgd,bskd->bkgts", query * dim**-0.5, key, dtype)
  scores = jnp.where(mask[:, None, None], scores, _MASKED)
  weights = jax.nn.softmax(scores, axis=-1)
  out = _einsum("bkgts,bskd->btkgd", weights, value, dtype)
  return out.reshape(batch, time, heads, dim)


def cached_attention(
    query: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    positions: jax.Array,
    dtype: jnp.dtype,
) -> jax.Array:
  """A query at position p sees slots 0..p of its cache row.

  query [batch, time, heads, dim], keys and values [batch, kv_heads, slots,
  dim], positions [batch, time] -> float32 [batch, time, heads, dim].
  """
  batch, time, heads, dim = query.shape
  kv_heads, slots = keys.shape[1:3]
  query = query.reshape(batch, time, kv_heads, heads // kv_heads, dim)
  scores = _einsum("btkgd,bksd->bkgts", query * dim**-0.5, keys, dtype)
  mask = jnp.arange(slots) <= positions[..., None]
  scores = jnp.where(mask[:, None, None], scores, _MASKED)
  weights = jax.nn.softmax(scores, axis=-1)
  out = _einsum("bkgts,bksd->btkgd", weights, values, dtype)
  return out.reshape(batch, time, heads, dim)


def _einsum(spec: str, a: jax.Array, b: jax.Array, dtype: jnp.dtype) -> jax.Array:
  return jnp.einsum(
      spec,
      a.astype(dtype),
      b.astype(dtype),
      precision="highest" if dtype == jnp.float32 else None,
      preferred_element_type=jnp.float32,
  )
