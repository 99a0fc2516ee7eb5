"""The key/value cache that a serving engine carries from step to step.

A cache row is one sequence; slot = position, so the key of position p of row r
stands at `keys[layer][r, ..., p]` until it is overwritten. A query at position p
sees slots 0..p of its row and nothing else, so a row is emptied by starting
again at position 0. The last slot (length - 1) is reserved: padding queries use
it as their position, and no real token may.

The cache is a pytree with one array a layer, so that a step updates each in
place: donate it to the jitted step, or every step copies it. A decode loop:

  model = create.serving_copy(model, jnp.bfloat16)  # weights cast once
  graphdef, params = nnx.split(model)
  cache = init_cache(model.config, slots, length, jnp.bfloat16)

  @partial(jax.jit, donate_argnums=1)
  def decode(params, cache, tokens, positions):  # int32 [slots, 1] each
    model = nnx.merge(graphdef, params)
    hidden, cache = model(tokens, positions, cache=cache)
    return model.logits(hidden[:, -1]), cache

bfloat16 is stored as its bits, in uint16: XLA on a CPU widens a bfloat16
scatter, and would convert the whole cache to float32 and back at every step.
`stored` and `loaded` go from one to the other.

Prefill is the same call with [batch, time] tokens and `rows=` the cache rows
that the sequences own; pad tokens at the right with position length - 1. New
weights: `params = jax.jit(serving_params, ...)(training_params, dtype)`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from clawgym_jax.models.config import ModelConfig


class KVCache(NamedTuple):
  """`keys[layer]` [rows, kv_heads, head_dim, length], `values[layer]` [rows,
  kv_heads, length, head_dim]: each as its product reads it.

  Axis 0 of every leaf is the row: `jax.tree.map` over the cache copies, moves
  or drops rows.
  """

  keys: tuple[jax.Array, ...]
  values: tuple[jax.Array, ...]

  @property
  def length(self) -> int:
    """Slots of a row, the reserved last one included."""
    return self.values[0].shape[2]

  @property
  def rows(self) -> int:
    return self.keys[0].shape[0]


def init_cache(
    config: ModelConfig, batch: int, length: int, dtype: jnp.dtype
) -> KVCache:
  """An empty cache of `batch` rows; `length` counts the reserved last slot.

  `dtype` is float32 or bfloat16, whatever stores it.
  """
  heads = (batch, config.num_key_value_heads)
  zero = stored(jnp.zeros((), dtype))

  def empty(*shape: int) -> tuple[jax.Array, ...]:
    count = config.num_hidden_layers
    return tuple(jnp.full((*heads, *shape), zero) for _ in range(count))

  return KVCache(
      keys=empty(config.head_dim, length), values=empty(length, config.head_dim)
  )


def stored(x: jax.Array) -> jax.Array:
  """float32 as it is, bfloat16 as its bits."""
  if x.dtype == jnp.bfloat16:
    return jax.lax.bitcast_convert_type(x, jnp.uint16)
  return x


def loaded(x: jax.Array) -> jax.Array:
  """The inverse of `stored`."""
  if x.dtype == jnp.uint16:
    return jax.lax.bitcast_convert_type(x, jnp.bfloat16)
  return x
