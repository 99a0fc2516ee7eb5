"""Attention under the mask j <= i < end[j], and attention into a KV cache.

`tree_attention` is the one attention of training: packed sequences and
trajectory trees are both cases of its mask. Its gradient keeps only the
log-sum-exp of each row and recomputes the weights (arXiv:2205.14135), block by
block of queries, so that no more than one block of scores exists at a time and
keys after a block are never touched. Query heads that share a key head are
folded into rows of one product.

A `Window` bounds how far back a query sees, by distance in positions and so
along its own path in a tree. Keys out of it are masked, not skipped: which
they are is an input of a scanned layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from clawgym_jax.models.cache import loaded
from clawgym_jax.models.layers.linear import dot, swap_last

_MASKED = -1e30
_BLOCK = 128
_MAX_BLOCKS = 8
_CACHE_PARTS = 4


class Window(NamedTuple):
  """How far back queries see: positions[i] - positions[j] < size.

  positions int32 [batch, time], size an int32 scalar.
  """

  positions: jax.Array
  size: jax.Array


def tree_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    end: jax.Array,
    dtype: jnp.dtype,
    *,
    scale: float | None = None,
    window: Window | None = None,
) -> jax.Array:
  """Query i sees key j if and only if j <= i < end[j] and j is in the window.

  query [batch, time, heads, dim], key and value [batch, time, kv_heads, dim],
  end int32 [batch, time] -> float32 [batch, time, heads, dim]. Operands of
  products are cast to `dtype`, sums and softmax are float32. Every query sees
  itself, so no row is empty (end[j] > j). `scale` of the scores: dim ** -0.5
  where absent.
  """
  batch, time, heads, dim = query.shape
  kv_heads = key.shape[2]
  scale = dim**-0.5 if scale is None else scale
  query = (query * scale).reshape(batch, time, kv_heads, -1, dim)
  query = query.astype(dtype).transpose(0, 2, 3, 1, 4)
  key = key.astype(dtype).transpose(0, 2, 1, 3)
  value = value.astype(dtype).transpose(0, 2, 1, 3)
  out = _attend(query, key, value, end, window, dtype)
  return out.transpose(0, 3, 1, 2, 4).reshape(batch, time, heads, dim)


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def _attend(query, key, value, end, window, dtype):
  """query [batch, kv, groups, time, dim], key and value [batch, kv, time, dim]."""
  return _attend_forward(query, key, value, end, window, dtype)[0]


def _attend_forward(query, key, value, end, window, dtype):
  outs, sums = [], []
  for rows, stop in _blocks(query.shape[3]):
    scores = _scores(query[..., rows, :], key[:, :, :stop], end, window, rows, stop)
    top = jnp.max(scores, axis=-1, keepdims=True)
    weights = jnp.exp(scores - top)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    out = _dot(weights.astype(dtype), value[:, :, :stop], 3, 2) / total
    outs.append(_unfold(out, query))
    sums.append(_unfold(top + jnp.log(total), query))
  out = checkpoint_name(jnp.concatenate(outs, axis=3), "attention")
  logsumexp = checkpoint_name(jnp.concatenate(sums, axis=3), "attention")
  return out, (query, key, value, end, window, out, logsumexp)


def _attend_backward(dtype, saved, grad):
  query, key, value, end, window, out, logsumexp = saved
  inner = jnp.sum(grad * out, axis=-1, keepdims=True)
  grad = grad.astype(dtype)
  dquery = []
  dkey = jnp.zeros(_swap_shape(key), jnp.float32)
  dvalue = jnp.zeros(_swap_shape(key), jnp.float32)
  for rows, stop in _blocks(query.shape[3]):
    scores = _scores(query[..., rows, :], key[:, :, :stop], end, window, rows, stop)
    weights = jnp.exp(scores - _fold(logsumexp[..., rows, :]))
    dout = _fold(grad[..., rows, :])
    dweights = _dot(dout, value[:, :, :stop], 3, 3)
    dscores = weights * (dweights - _fold(inner[..., rows, :]))
    dscores = dscores.astype(dtype)
    dquery.append(_unfold(_dot(dscores, key[:, :, :stop], 3, 2), query))
    # dK^T and dV^T: only the narrow operand has to be transposed.
    rows_query = swap_last(_fold(query[..., rows, :]))
    dkey = dkey.at[..., :stop].add(_dot(rows_query, dscores, 3, 2))
    dvalue = dvalue.at[..., :stop].add(
        _dot(swap_last(dout), weights.astype(dtype), 3, 2)
    )
  return (
      jnp.concatenate(dquery, axis=3).astype(query.dtype),
      swap_last(dkey).astype(key.dtype),
      swap_last(dvalue).astype(value.dtype),
      None,
      None,
  )


_attend.defvjp(_attend_forward, _attend_backward)


def _swap_shape(x: jax.Array) -> tuple[int, ...]:
  return (*x.shape[:-2], x.shape[-1], x.shape[-2])


def _blocks(time: int) -> Iterator[tuple[slice, int]]:
  """Blocks of query rows, and the first key that a block can't see."""
  size = max(_BLOCK, -(-time // _MAX_BLOCKS))
  for start in range(0, time, size):
    stop = min(start + size, time)
    yield slice(start, stop), stop


def _scores(query, key, end, window, rows, stop):
  """Masked scores [batch, kv, groups * rows, stop] of one block of queries."""
  i = jnp.arange(rows.start, rows.stop)[:, None]
  mask = (jnp.arange(stop) <= i) & (i < end[:, None, :stop])
  if window is not None:
    positions = window.positions
    mask &= positions[:, rows, None] - positions[:, None, :stop] < window.size
  mask = jnp.tile(mask, (1, query.shape[2], 1))[:, None]
  return jnp.where(mask, _dot(_fold(query), key, 3, 3), _MASKED)


def _fold(x: jax.Array) -> jax.Array:
  """[batch, kv, groups, rows, dim] -> [batch, kv, groups * rows, dim]."""
  return x.reshape(*x.shape[:2], -1, x.shape[-1])


def _unfold(x: jax.Array, query: jax.Array) -> jax.Array:
  """[batch, kv, groups * rows, dim] -> [batch, kv, groups, rows, dim]."""
  return x.reshape(*query.shape[:3], -1, x.shape[-1])


def _dot(a: jax.Array, b: jax.Array, axis_a: int, axis_b: int) -> jax.Array:
  """Product over one axis each, batched over the first two; float32."""
  return dot(a, b, axis_a, axis_b, a.dtype, batch=2)


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
  query = (query * scale).reshape(batch, time, keys.shape[1], -1, dim)
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
  scores = jnp.where(mask, _dot(_fold(query), keys, 3, 2), _MASKED)
  weights = jax.nn.softmax(scores, axis=-1).astype(dtype)
  return _unfold(_dot(weights, values, 3, 2), query)
