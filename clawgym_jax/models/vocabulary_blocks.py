"""Scores of tokens on a mesh: one block of the vocabulary at a time.

Each device scores the positions that lie on it. Of the vocabulary it has the
part that `tensor` leaves it, and goes through that in blocks: a block's vectors
are gathered over `fsdp`, cast before, its logits of all positions join a running
softmax, and in the backward pass its gradient leaves for where it belongs. So
neither the whole head nor its gradient is ever on one device.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from clawgym_jax import parallel
from clawgym_jax.models.layers.linear import dot

_TABLE = jax.P("tensor", "fsdp")
_ROW = jax.P(*parallel.HIDDEN[:2])
_LOGITS = 1 << 26
"""Most logits that exist at a time on a device, float32."""
_LANES = 128
_MASKED = -1e30


class How(NamedTuple):
  """The dtype of operands, and whether entropies are asked for."""

  dtype: jnp.dtype
  entropy: bool


class _Block(NamedTuple):
  """Some vectors of the vocabulary, [size, hidden / fsdp], and where they start.

  `count` is how many of them are no padding.
  """

  table: jax.Array
  start: jax.Array
  count: jax.Array


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def scores(
    table: jax.Array,
    hidden: jax.Array,
    targets: jax.Array,
    temperature: jax.Array,
    how: How,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Log-probabilities, entropies and log(sum(exp(logits))) under the mesh in use.

  table [vocab, hidden] split over `tensor` and `fsdp`, hidden [batch, n, hidden]
  and targets int32 [batch, n] as `parallel.HIDDEN`, temperature a scalar. The
  results are float32 [batch, n], and entropies have no gradient.
  """
  return _forward(table, hidden, targets, temperature, how)[0]


def _forward(table, hidden, targets, temperature, how):
  def local(table, hidden, targets, temperature):
    shape = targets.shape
    hidden, targets = _flat(hidden), targets.reshape(-1)
    first = jax.lax.axis_index("tensor") * table.shape[0]

    def one(state, block):
      top, total, picked, mean = state
      logits, hit = _logits(block, hidden, targets - first, temperature, how.dtype)
      new = jnp.maximum(top, jnp.max(logits, axis=0))
      weights, scale = jnp.exp(logits - new), jnp.exp(top - new)
      total = scale * total + jnp.sum(weights, axis=0)
      picked += jnp.sum(jnp.where(hit, logits, 0.0), axis=0)
      if how.entropy:
        mean = scale * mean + jnp.sum(weights * logits, axis=0)
      return (new, total, picked, mean), None

    zeros = jnp.zeros(targets.shape, jnp.float32)
    state = jnp.full(targets.shape, _MASKED), zeros, zeros, zeros
    (top, total, picked, mean), _ = jax.lax.scan(one, state, _blocks(table, targets))
    new = jax.lax.pmax(top, "tensor")
    scale = jnp.exp(top - new)
    total = jax.lax.psum(scale * total, "tensor")
    logsumexp = new + jnp.log(total)
    logprobs = jax.lax.psum(picked, "tensor") - logsumexp
    spread = zeros
    if how.entropy:
      spread = logsumexp - jax.lax.psum(scale * mean, "tensor") / total
    return tuple(x.reshape(shape) for x in (logprobs, spread, logsumexp))

  arguments = table, hidden, targets, temperature
  specs = _TABLE, parallel.HIDDEN, _ROW, jax.P()
  run = parallel.on_mesh(local, specs, (_ROW, _ROW, _ROW))
  found = run(*arguments)
  return found, (*arguments, found[2])


def _backward(how, saved, grads):
  def local(table, hidden, targets, temperature, logsumexp, grad, grad_sum):
    shape, kind = hidden.shape, hidden.dtype
    hidden = _flat(hidden).astype(how.dtype)
    targets, logsumexp, grad, grad_sum = (
        x.reshape(-1) for x in (targets, logsumexp, grad, grad_sum)
    )
    first = jax.lax.axis_index("tensor") * table.shape[0]

    def one(dhidden, block):
      logits, hit = _logits(block, hidden, targets - first, temperature, how.dtype)
      weights = jnp.exp(logits - logsumexp)
      dlogits = jnp.where(hit, grad, 0.0) - weights * (grad - grad_sum)
      dlogits = (dlogits / temperature).astype(how.dtype)
      dhidden += dot(dlogits, _gathered(block.table, how.dtype), 0, 0, how.dtype)
      dblock = dot(dlogits, hidden, 1, 0, how.dtype).astype(how.dtype)
      return dhidden, _sent(dblock, rows)

    blocks = _blocks(table, targets)
    dhidden, dtable = jax.lax.scan(one, jnp.zeros(hidden.shape, jnp.float32), blocks)
    dtable = dtable.reshape(-1, table.shape[1])[: table.shape[0]]
    dhidden = jax.lax.psum(dhidden, "tensor").astype(kind)
    return dtable.astype(table.dtype), dhidden.reshape(shape)

  fitted = parallel.fitting(parallel.HIDDEN, saved[1].shape)
  rows = {axis for axes in fitted[:2] if axes for axis in jax.tree.leaves(axes)}
  specs = _TABLE, parallel.HIDDEN, _ROW, jax.P(), _ROW, _ROW, _ROW
  run = parallel.on_mesh(local, specs, (_TABLE, parallel.HIDDEN))
  return (*run(*saved, grads[0], grads[2]), None, None)


scores.defvjp(_forward, _backward)


def _flat(hidden: jax.Array) -> jax.Array:
  return hidden.reshape(-1, hidden.shape[-1])


def _blocks(table: jax.Array, targets: jax.Array) -> _Block:
  """Blocks of a device's vectors, stacked for a scan, the last one padded."""
  vocab = table.shape[0]
  size = min(vocab, max(1, _LOGITS // targets.size))
  count = -(-vocab // size)
  size = -(-vocab // count)
  if count > 1:
    size = -(-size // _LANES) * _LANES
    count = -(-vocab // size)
  padded = jnp.pad(table, ((0, count * size - vocab), (0, 0)))
  starts = jnp.arange(count) * size
  return _Block(
      table=padded.reshape(count, size, -1),
      start=starts,
      count=jnp.minimum(vocab - starts, size),
  )


def _logits(block, hidden, targets, temperature, dtype):
  """Logits [size, positions] of a block, and which of them are targets'."""
  logits = dot(_gathered(block.table, dtype), hidden, 1, 1, dtype) / temperature
  place = jnp.arange(logits.shape[0])[:, None]
  logits = jnp.where(place < block.count, logits, _MASKED)
  return logits, place == targets - block.start


def _gathered(table: jax.Array, dtype: jnp.dtype) -> jax.Array:
  return jax.lax.all_gather(table.astype(dtype), "fsdp", axis=1, tiled=True)


def _sent(dblock: jax.Array, rows: set[str]) -> jax.Array:
  """A device's part of a block's gradient, added up over those that had other rows."""
  if "fsdp" in rows:
    dblock = jax.lax.psum_scatter(dblock, "fsdp", scatter_dimension=1, tiled=True)
  else:
    size = dblock.shape[1] // parallel.axis_size("fsdp")
    start = jax.lax.axis_index("fsdp") * size
    dblock = jax.lax.dynamic_slice_in_dim(dblock, start, size, 1)
  return jax.lax.psum(dblock, tuple(sorted(rows - {"fsdp"})))
