"""Attention of rows that are short, on a CPU: few blocks of queries, unrolled.

No more than one block of scores exists at a time and keys after a block are
never touched; what a block takes grows with the row, so long rows are not for it
(`blockwise`). The gradient keeps only the log-sum-exp of each query and
recomputes the weights (arXiv:2205.14135).
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from clawgym_jax.models.layers.attention.scores import (
    Part,
    dot_heads,
    fold,
    masked_scores,
    seen,
    unfold,
)
from clawgym_jax.models.layers.linear import swap_last

LONGEST = 2048
"""Tokens of a row; above it the blocks of scores take more memory than the model."""
_BLOCK = 128
_MAX_BLOCKS = 8


def forward(part: Part) -> tuple[jax.Array, jax.Array]:
  """Of whole rows: the result, float32 as the query, and its log-sum-exp [..., 1]."""
  query, dtype = part.query, part.query.dtype
  outs, sums = [], []
  for rows, stop in _blocks(query.shape[3]):
    scores = _scores(part, rows, stop)
    top = jnp.max(scores, axis=-1, keepdims=True)
    weights = jnp.exp(scores - top)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    out = dot_heads(weights.astype(dtype), part.value[:, :, :stop], 3, 2) / total
    outs.append(unfold(out, query))
    sums.append(unfold(top + jnp.log(total), query))
  return jnp.concatenate(outs, axis=3), jnp.concatenate(sums, axis=3)


def backward(
    part: Part, logsumexp: jax.Array, grad: jax.Array, inner: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Gradients of query, key and value, float32.

  grad is the result's, inner = sum(grad * result) [..., 1] of it.
  """
  query, key, dtype = part.query, part.key, part.query.dtype
  grad = grad.astype(dtype)
  dquery = []
  dkey = jnp.zeros(_swap_shape(key), jnp.float32)
  dvalue = jnp.zeros(_swap_shape(key), jnp.float32)
  for rows, stop in _blocks(query.shape[3]):
    scores = _scores(part, rows, stop)
    weights = jnp.exp(scores - fold(logsumexp[..., rows, :]))
    dout = fold(grad[..., rows, :])
    dweights = dot_heads(dout, part.value[:, :, :stop], 3, 3)
    dscores = weights * (dweights - fold(inner[..., rows, :]))
    dscores = dscores.astype(dtype)
    dquery.append(unfold(dot_heads(dscores, key[:, :, :stop], 3, 2), query))
    # dK^T and dV^T: only the narrow operand has to be transposed.
    rows_query = swap_last(fold(query[..., rows, :]))
    dkey = dkey.at[..., :stop].add(dot_heads(rows_query, dscores, 3, 2))
    dvalue = dvalue.at[..., :stop].add(
        dot_heads(swap_last(dout), weights.astype(dtype), 3, 2)
    )
  return jnp.concatenate(dquery, axis=3), swap_last(dkey), swap_last(dvalue)


def _swap_shape(x: jax.Array) -> tuple[int, ...]:
  return (*x.shape[:-2], x.shape[-1], x.shape[-2])


def _blocks(time: int) -> Iterator[tuple[slice, int]]:
  """Blocks of query rows, and the first key that a block can't see."""
  size = max(_BLOCK, -(-time // _MAX_BLOCKS))
  for start in range(0, time, size):
    stop = min(start + size, time)
    yield slice(start, stop), stop


def _scores(part: Part, rows: slice, stop: int) -> jax.Array:
  """Masked scores [batch, kv, groups * rows, stop] of one block of queries."""
  window = part.window
  if window is not None:
    window = window._replace(
        queries=window.queries[:, rows], keys=window.keys[:, :stop]
    )
  indices = jnp.arange(rows.start, rows.stop)
  mask = seen(indices, jnp.arange(stop), part.end[:, :stop], window)
  return masked_scores(part.query[..., rows, :], part.key[:, :, :stop], mask)
