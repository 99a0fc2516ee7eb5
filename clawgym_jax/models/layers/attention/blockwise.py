"""Attention whose memory is linear in the row's length, by XLA alone.

Blocks of queries meet blocks of keys one pair at a time, and only the pairs
between the first and the last key block that some query of the block sees. The
running softmax and the recomputed gradient are those of arXiv:2205.14135.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from clawgym_jax.models.layers.attention.scores import (
    MASKED,
    Part,
    dot_heads,
    fold,
    masked_scores,
    seen,
    unfold,
)

_BLOCK = 512


def forward(part: Part) -> tuple[jax.Array, jax.Array]:
  """The result, float32 as the query, and its log-sum-exp [..., 1]."""
  dtype = part.query.dtype
  step = _block(part.query.shape[3] // part.starts.shape[0])
  size = _block(part.key.shape[2])

  def one(at: jax.Array) -> tuple[jax.Array, jax.Array]:
    block = _queries(part, at * step, step)
    rows = fold(block.query)
    state = (
        jnp.full((*rows.shape[:3], 1), MASKED, jnp.float32),
        jnp.zeros((*rows.shape[:3], 1), jnp.float32),
        jnp.zeros(rows.shape, jnp.float32),
    )

    def meet(index: jax.Array, state):
      top, total, out = state
      scores, _, value = _scores(block, index * size, size)
      new = jnp.maximum(top, jnp.max(scores, axis=-1, keepdims=True))
      weights = jnp.exp(scores - new)
      scale = jnp.exp(top - new)
      total = scale * total + jnp.sum(weights, axis=-1, keepdims=True)
      return new, total, scale * out + dot_heads(weights.astype(dtype), value, 3, 2)

    top, total, out = jax.lax.fori_loop(*_range(block, size), meet, state)
    return unfold(out / total, block.query), unfold(top + jnp.log(total), block.query)

  out, logsumexp = jax.lax.map(one, jnp.arange(part.query.shape[3] // step))
  return _joined(out), _joined(logsumexp)


def backward(
    part: Part, logsumexp: jax.Array, grad: jax.Array, inner: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Gradients of query, key and value, float32; see `short.backward`."""
  dtype = part.query.dtype
  grad = grad.astype(dtype)
  step = _block(part.query.shape[3] // part.starts.shape[0])
  size = _block(part.key.shape[2])

  def one(sums: tuple[jax.Array, jax.Array], at: jax.Array):
    block = _queries(part, at * step, step)
    query = fold(block.query)
    dout, mine, total = (
        fold(jax.lax.dynamic_slice_in_dim(x, at * step, step, 3))
        for x in (grad, inner, logsumexp)
    )

    def meet(index: jax.Array, state):
      dquery, dkey, dvalue = state
      scores, key, value = _scores(block, index * size, size)
      weights = jnp.exp(scores - total)
      dscores = weights * (dot_heads(dout, value, 3, 3) - mine)
      dscores = dscores.astype(dtype)
      dquery += dot_heads(dscores, key, 3, 2)
      dkey = _added(dkey, dot_heads(dscores, query, 2, 2), index * size)
      weights = weights.astype(dtype)
      return dquery, dkey, _added(dvalue, dot_heads(weights, dout, 2, 2), index * size)

    state = (jnp.zeros(query.shape, jnp.float32), *sums)
    dquery, *sums = jax.lax.fori_loop(*_range(block, size), meet, state)
    return tuple(sums), unfold(dquery, block.query)

  zeros = jnp.zeros(part.key.shape, jnp.float32)
  blocks = jnp.arange(part.query.shape[3] // step)
  (dkey, dvalue), dquery = jax.lax.scan(one, (zeros, zeros), blocks)
  return _joined(dquery), dkey, dvalue


def _block(length: int) -> int:
  """Of a length: as near to `_BLOCK` as divides it."""
  if length <= _BLOCK:
    return length
  return max(size for size in range(1, _BLOCK + 1) if length % size == 0)


def _queries(part: Part, start: jax.Array, step: int) -> Part:
  """A part of some of its queries; `step` divides its runs."""
  def cut(x: jax.Array, axis: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(x, start, step, axis)

  window = part.window
  if window is not None:
    window = window._replace(queries=cut(window.queries, 1))
  starts = cut(part.indices, 0)[:1]
  return part._replace(query=cut(part.query, 3), starts=starts, window=window)


def _range(block: Part, size: int) -> tuple[jax.Array, jax.Array]:
  """First and last + 1 of the key blocks that these queries see something of."""
  first, last = block.indices[0], block.indices[-1]
  reach = jnp.max(block.end.reshape(block.end.shape[0], -1, size), axis=(0, 2))
  return jnp.argmax(reach > first), last // size + 1


def _scores(
    block: Part, start: jax.Array, size: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Masked scores with `size` keys from `start` on, those keys and their values."""
  def cut(x: jax.Array, axis: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis)

  window = block.window
  if window is not None:
    window = window._replace(keys=cut(window.keys, 1))
  mask = seen(block.indices, start + jnp.arange(size), cut(block.end, 1), window)
  key = cut(block.key, 2)
  return masked_scores(block.query, key, mask), key, cut(block.value, 2)


def _added(sums: jax.Array, block: jax.Array, start: jax.Array) -> jax.Array:
  old = jax.lax.dynamic_slice_in_dim(sums, start, block.shape[2], 2)
  return jax.lax.dynamic_update_slice_in_dim(sums, old + block, start, 2)


def _joined(blocks: jax.Array) -> jax.Array:
  """[blocks, batch, kv, groups, rows, dim] -> [batch, kv, groups, time, dim]."""
  blocks = jnp.moveaxis(blocks, 0, 3)
  return blocks.reshape(*blocks.shape[:3], -1, blocks.shape[-1])
