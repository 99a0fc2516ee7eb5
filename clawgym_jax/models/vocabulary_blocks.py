"""Scores of tokens on a mesh: one block of the vocabulary at a time.

Each device scores the positions that lie on it. Of the vocabulary it has the
part that `tensor` leaves it, and goes through that in blocks: a block's vectors
are gathered over `fsdp`, cast before, its logits of all positions join a running
softmax, and in the backward pass its gradient leaves for where it belongs. So
neither the whole head nor its gradient is ever on one device. The last block
begins early enough to be as large as the others; what it repeats is masked.
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


class _Blocks(NamedTuple):
  """A device's vectors and the positions that they score.

  Attributes:
    table: [vocab / tensor, hidden / fsdp], in the dtype of products.
    hidden: [positions, hidden], likewise.
    targets: int32 [positions], as indices of this part of the vocabulary.
    temperature: float32 scalar.
  """

  table: jax.Array
  hidden: jax.Array
  targets: jax.Array
  temperature: jax.Array

  @classmethod
  def of(cls, table, hidden, targets, temperature, dtype) -> _Blocks:
    first = jax.lax.axis_index("tensor") * table.shape[0]
    hidden = hidden.reshape(-1, hidden.shape[-1]).astype(dtype)
    return cls(table.astype(dtype), hidden, targets.reshape(-1) - first, temperature)

  @property
  def size(self) -> int:
    """Vectors of a block."""
    most = max(_LANES, _LOGITS // self.targets.size // _LANES * _LANES)
    return min(self.table.shape[0], most)

  @property
  def numbers(self) -> jax.Array:
    return jnp.arange(-(-self.table.shape[0] // self.size))

  def start(self, number: jax.Array) -> jax.Array:
    return jnp.minimum(number * self.size, self.table.shape[0] - self.size)

  def logits(self, number: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of one block: logits [size, positions], which are targets', and its vectors."""
    start = self.start(number)
    block = jax.lax.dynamic_slice_in_dim(self.table, start, self.size)
    block = jax.lax.all_gather(block, "fsdp", axis=1, tiled=True)
    logits = dot(block, self.hidden, 1, 1, block.dtype) / self.temperature
    place = start + jnp.arange(self.size)[:, None]
    new = place >= number * self.size
    return jnp.where(new, logits, _MASKED), new & (place == self.targets), block


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
    blocks = _Blocks.of(table, hidden, targets, temperature, how.dtype)

    def one(state, number):
      top, total, picked, mean = state
      logits, hit, _ = blocks.logits(number)
      new = jnp.maximum(top, jnp.max(logits, axis=0))
      weights, scale = jnp.exp(logits - new), jnp.exp(top - new)
      total = scale * total + jnp.sum(weights, axis=0)
      picked += jnp.sum(jnp.where(hit, logits, 0.0), axis=0)
      if how.entropy:
        mean = scale * mean + jnp.sum(weights * logits, axis=0)
      return (new, total, picked, mean), None

    zeros = jnp.zeros(blocks.targets.shape, jnp.float32)
    state = jnp.full_like(zeros, _MASKED), zeros, zeros, zeros
    (top, total, picked, mean), _ = jax.lax.scan(one, state, blocks.numbers)
    new = jax.lax.pmax(top, "tensor")
    scale = jnp.exp(top - new)
    total = jax.lax.psum(scale * total, "tensor")
    logsumexp = new + jnp.log(total)
    logprobs = jax.lax.psum(picked, "tensor") - logsumexp
    spread = zeros
    if how.entropy:
      spread = logsumexp - jax.lax.psum(scale * mean, "tensor") / total
    return tuple(x.reshape(targets.shape) for x in (logprobs, spread, logsumexp))

  arguments = table, hidden, targets, temperature
  specs = _TABLE, parallel.HIDDEN, _ROW, jax.P()
  run = parallel.on_mesh(local, specs, (_ROW, _ROW, _ROW))
  found = run(*arguments)
  return found, (*arguments, found[2])


def _backward(how, saved, grads):
  def local(table, hidden, targets, temperature, logsumexp, grad, grad_sum):
    blocks = _Blocks.of(table, hidden, targets, temperature, how.dtype)
    logsumexp, grad, grad_sum = (x.reshape(-1) for x in (logsumexp, grad, grad_sum))

    def one(sums, number):
      dtable, dhidden = sums
      logits, hit, block = blocks.logits(number)
      weights = jnp.exp(logits - logsumexp)
      dlogits = jnp.where(hit, grad, 0.0) - weights * (grad - grad_sum)
      dlogits = (dlogits / temperature).astype(how.dtype)
      dhidden += dot(dlogits, block, 0, 0, how.dtype)
      mine = _sent(dot(blocks.hidden, dlogits, 0, 1, how.dtype), how.dtype, rows)
      start = blocks.start(number)
      old = jax.lax.dynamic_slice_in_dim(dtable, start, blocks.size)
      dtable = jax.lax.dynamic_update_slice_in_dim(dtable, old + mine.T, start, 0)
      return (dtable, dhidden), None

    dtable = jnp.zeros(table.shape, table.dtype)
    dhidden = jnp.zeros(blocks.hidden.shape, jnp.float32)
    (dtable, dhidden), _ = jax.lax.scan(one, (dtable, dhidden), blocks.numbers)
    dhidden = jax.lax.psum(dhidden, "tensor").astype(hidden.dtype)
    return dtable, dhidden.reshape(hidden.shape)

  fitted = parallel.fitting(parallel.HIDDEN, saved[1].shape)
  rows = {axis for axes in fitted[:2] if axes for axis in jax.tree.leaves(axes)}
  specs = _TABLE, parallel.HIDDEN, _ROW, jax.P(), _ROW, _ROW, _ROW
  run = parallel.on_mesh(local, specs, (_TABLE, parallel.HIDDEN))
  return (*run(*saved, grads[0], grads[2]), None, None)


scores.defvjp(_forward, _backward)


def _sent(dblock: jax.Array, dtype: jnp.dtype, rows: set[str]) -> jax.Array:
  """A device's part of a block's gradient, added up over those that had other rows.

  dblock [hidden, size], so that its outer dimension is the one that is scattered;
  it is sent in `dtype`.
  """
  dblock = dblock.astype(dtype)
  if "fsdp" in rows:
    dblock = jax.lax.psum_scatter(dblock, "fsdp", tiled=True)
  else:
    size = dblock.shape[0] // parallel.axis_size("fsdp")
    start = jax.lax.axis_index("fsdp") * size
    dblock = jax.lax.dynamic_slice_in_dim(dblock, start, size)
  return jax.lax.psum(dblock, tuple(sorted(rows - {"fsdp"})))
