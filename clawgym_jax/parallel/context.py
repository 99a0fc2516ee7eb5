"""Context parallelism: the tokens of a row over the mesh axis `context`.

Under a causal mask later queries have more to compute. So a row is cut into
twice as many chunks as there are devices, and device c has the chunks c and
2 * devices - 1 - c: first and last, second and last but one. `order` puts a row
that way, `natural` puts a model's result back; in between only attention knows.
There every device gathers all keys (they are few: grouped queries) and computes
its own queries; the gradients of keys are added up and scattered again.

`gather`, `starts` and `scatter_sum` are for the inside of a shard_map.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from clawgym_jax.contracts.errors import require
from clawgym_jax.parallel.mesh import HIDDEN, axis_size, fitting, on_mesh

_AXIS = "context"


def order(time: int) -> np.ndarray | None:
  """int32 [time], the index in its row of the token at each place.

  None where `context` is one device, and every token at its own index.
  """
  count = axis_size(_AXIS)
  if count == 1:
    return None
  require(
      time % (2 * count) == 0,
      f"rows of {time} tokens can't be cut into 2 chunks for each of {count} devices"
      " of the mesh axis context",
  )
  chunks = np.arange(time, dtype=np.int32).reshape(2 * count, -1)
  pairs = [(first, 2 * count - 1 - first) for first in range(count)]
  return chunks[np.asarray(pairs).reshape(-1)].reshape(-1)


def natural(hidden: jax.Array) -> jax.Array:
  """[batch, time, ...] in `order` -> in the row's order, split over `context` still."""
  count = axis_size(_AXIS)
  if count == 1:
    return hidden
  # Chunk 2d and chunk 2d + 1 go to device d: every device has one even and one odd.
  evens, odds = [], []  # moves from device to device
  for device in range(count):
    for chunk in (device, 2 * count - 1 - device):
      (odds if chunk % 2 else evens).append((device, chunk // 2))

  def swap(x):
    first, second = jnp.split(x, 2, axis=1)
    even = jax.lax.axis_index(_AXIS) % 2 == 0
    sent = jnp.where(even, first, second), jnp.where(even, second, first)
    received = [
        jax.lax.ppermute(part, _AXIS, moves) for part, moves in zip(sent, (evens, odds))
    ]
    return jnp.concatenate(received, axis=1)

  return on_mesh(swap, (HIDDEN,), HIDDEN)(hidden)


def taken(hidden: jax.Array, index: jax.Array, dtype: jnp.dtype) -> jax.Array:
  """hidden[b, index[b, n]] of hidden [batch, time, size], index int32 [batch, n].

  On a mesh the result is split as `hidden` is, n in the place of time where it
  fits, and rounded to `dtype`, in which it is sent between devices.
  """
  if jax.sharding.get_abstract_mesh().empty:
    return jnp.take_along_axis(hidden, index[..., None], axis=1)
  split = fitting(HIDDEN, hidden.shape)[1] and fitting(HIDDEN, index.shape)[1]

  def local(hidden, index):
    if axis_size(_AXIS) == 1 or not split:
      return jnp.take_along_axis(hidden, index[..., None], axis=1)
    index = index - jax.lax.axis_index(_AXIS) * hidden.shape[1]
    here = (index >= 0) & (index < hidden.shape[1])
    found = jnp.take_along_axis(hidden, jnp.where(here, index, 0)[..., None], axis=1)
    found = jnp.where(here[..., None], found, 0)
    return jax.lax.psum_scatter(found, _AXIS, scatter_dimension=1, tiled=True)

  rows = jax.P(HIDDEN[0], None)
  states = HIDDEN if split else jax.P(HIDDEN[0], None, None)
  return on_mesh(local, (states, rows), states)(hidden.astype(dtype), index)


def starts(time: int) -> jax.Array:
  """int32 [2], the indices at which this device's two chunks of a row start."""
  count = axis_size(_AXIS)
  here = jax.lax.axis_index(_AXIS)
  chunks = jnp.stack([here, 2 * count - 1 - here]).astype(jnp.int32)
  return chunks * (time // (2 * count))


def gather(x: jax.Array, axis: int) -> jax.Array:
  """This device's two chunks along `axis` -> whole rows in their order."""
  found = jax.lax.all_gather(x, _AXIS)  # [devices, ...]
  first, second = jnp.split(found, 2, axis=axis + 1)
  chunks = jnp.concatenate([first, second[::-1]])
  return _joined(chunks, axis)


def scatter_sum(x: jax.Array, axis: int) -> jax.Array:
  """Whole rows of every device, added up -> this device's two chunks of the sum."""
  count = axis_size(_AXIS)
  chunks = jnp.stack(jnp.split(x, 2 * count, axis=axis))
  pairs = jnp.concatenate([chunks[:count], chunks[count:][::-1]], axis=axis + 1)
  return jax.lax.psum_scatter(pairs, _AXIS)


def _joined(chunks: jax.Array, axis: int) -> jax.Array:
  """[chunks, ...] -> the chunks side by side along `axis`."""
  chunks = jnp.moveaxis(chunks, 0, axis)
  shape = list(chunks.shape)
  shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
  return chunks.reshape(shape)
