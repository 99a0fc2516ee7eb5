"""What the attention paths that XLA compiles share: shapes of blocks, and products.

Query heads that share a key head are folded into rows of one product.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from clawgym_jax.models.layers.linear import dot

MASKED = -1e30


class Part(NamedTuple):
  """The queries that one device attends with, and the keys of whole rows.

  Attributes:
    query: [batch, kv_heads, groups, queries, dim], scaled.
    key, value: [batch, kv_heads, time, dim].
    end: int32 [batch, time].
    starts: int32 [pieces]; the queries are `pieces` runs of equal length, and
      run n holds those of the indices from starts[n] on.
    window: None where a query sees all before it.
  """

  query: jax.Array
  key: jax.Array
  value: jax.Array
  end: jax.Array
  starts: jax.Array
  window: PartWindow | None

  @property
  def indices(self) -> jax.Array:
    """Of the queries in their rows, int32 [queries]."""
    run = self.query.shape[3] // self.starts.shape[0]
    return (self.starts[:, None] + jnp.arange(run)).reshape(-1)


class PartWindow(NamedTuple):
  """int32 [batch, queries], [batch, time] and a scalar, see `rows.Window`."""

  queries: jax.Array
  keys: jax.Array
  size: jax.Array


def seen(
    indices: jax.Array,
    keys: jax.Array,
    end: jax.Array,
    window: PartWindow | None,
) -> jax.Array:
  """Which of some keys some queries see, bool [batch, queries, keys].

  indices int32 [queries], keys int32 [keys], end int32 [batch, keys]; a window
  of those queries and keys.
  """
  at = indices[:, None]
  mask = (keys <= at) & (at < end[:, None])
  if window is not None:
    mask &= window.queries[:, :, None] - window.keys[:, None] < window.size
  return mask


def masked_scores(query: jax.Array, key: jax.Array, mask: jax.Array) -> jax.Array:
  """[batch, kv, groups, rows, dim], [batch, kv, keys, dim], [batch, rows, keys]
  -> [batch, kv, groups * rows, keys]."""
  mask = jnp.tile(mask, (1, query.shape[2], 1))[:, None]
  return jnp.where(mask, dot_heads(fold(query), key, 3, 3), MASKED)


def fold(x: jax.Array) -> jax.Array:
  """[batch, kv, groups, rows, dim] -> [batch, kv, groups * rows, dim]."""
  return x.reshape(*x.shape[:2], -1, x.shape[-1])


def unfold(x: jax.Array, query: jax.Array) -> jax.Array:
  """[batch, kv, groups * rows, dim] -> [batch, kv, groups, rows, dim]."""
  return x.reshape(*query.shape[:3], -1, x.shape[-1])


def dot_heads(a: jax.Array, b: jax.Array, axis_a: int, axis_b: int) -> jax.Array:
  """Product over one axis each, batched over the first two; float32."""
  return dot(a, b, axis_a, axis_b, a.dtype, batch=2)
