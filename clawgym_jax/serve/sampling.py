"""Draws one token a row on the device, with the log-probs of what was drawn.

A row's draw depends on its own logits, key and position alone, so the same
request gets the same tokens in any batch (up to the rounding of its logits).
The draw inverts the cumulative distribution in two stages, lane then entry,
each with its own uniform number: one pass over the vocabulary, no sort, no
random number per entry. Sums run over the leading axis of `[batch, entries,
lanes]`, which compilers turn into vector code.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

_LANES = 256


def sample(
    logits: jax.Array,
    keys: jax.Array,
    positions: jax.Array,
    temperature: jax.Array,
    top_p: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Samples one token a row.

  Args:
    logits: float32 [batch, vocab].
    keys: uint32 [batch, 2], threefry key data; one key a request.
    positions: int32 [batch], the position of the last token that was read.
    temperature: float32 [batch]; 0 takes the most probable token.
    top_p: float32 [batch] in (0, 1]; the smallest set of most probable tokens
      with at least this mass stays, ties at its edge included.

  Returns:
    tokens int32 [batch]; their log-probs under the distribution drawn from
    (0 where greedy) and under the softmax of `logits`, float32 [batch].
  """
  vocab = logits.shape[-1]
  grid = _grid(logits)  # [batch, entries, lanes], padded with -inf
  shifted = grid - _reduce(jnp.max, grid)
  untempered_norm = jnp.log(_reduce(jnp.sum, jnp.exp(shifted)))[:, 0, 0]

  greedy = temperature <= 0
  scaled = shifted / jnp.where(greedy, 1.0, temperature)[:, None, None]
  scaled = jax.lax.cond(
      jnp.any((top_p < 1) & ~greedy), _nucleus, lambda z, _: z, scaled, top_p
  )
  mass = jnp.exp(scaled)
  tokens, total = _draw(mass, keys, positions)
  tokens = jax.lax.cond(
      jnp.any(greedy),
      lambda: jnp.where(greedy, jnp.argmax(logits, axis=-1), tokens),
      lambda: tokens,
  )
  tokens = jnp.minimum(tokens, vocab - 1).astype(jnp.int32)

  def pick(values: jax.Array) -> jax.Array:
    flat = values.reshape(values.shape[0], -1)
    return jnp.take_along_axis(flat, tokens[:, None], axis=-1)[:, 0]

  logprobs = jnp.where(greedy, 0.0, pick(scaled) - jnp.log(total))
  return tokens, logprobs, pick(shifted) - untempered_norm


def _grid(logits: jax.Array) -> jax.Array:
  batch, vocab = logits.shape
  padded = jnp.pad(
      logits, ((0, 0), (0, -vocab % _LANES)), constant_values=-jnp.inf
  )
  return padded.reshape(batch, -1, _LANES)


def _reduce(function, grid: jax.Array) -> jax.Array:
  lanes = function(grid, axis=1, keepdims=True)
  return function(lanes, axis=2, keepdims=True)


def _draw(
    mass: jax.Array, keys: jax.Array, positions: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Tokens int32 [batch] drawn in proportion to `mass`, and its sum [batch]."""
  typed = jax.random.wrap_key_data(keys, impl="threefry2x32")
  uniform = jax.vmap(
      lambda key, position: jax.random.uniform(jax.random.fold_in(key, position), (2,))
  )(typed, positions)
  lanes = mass.sum(axis=1)  # [batch, lanes]
  lane = _invert(lanes, uniform[:, 0])
  entries = jnp.take_along_axis(mass, lane[:, None, None], axis=2)[:, :, 0]
  entry = _invert(entries, uniform[:, 1])
  return entry * mass.shape[2] + lane, lanes.sum(axis=1)


def _invert(mass: jax.Array, uniform: jax.Array) -> jax.Array:
  """First index whose cumulative mass exceeds `uniform` of the whole; [batch]."""
  cumulative = jnp.cumsum(mass, axis=-1)
  above = cumulative > uniform[:, None] * cumulative[:, -1:]
  # Rounding may leave none above; the heaviest entry then, never an empty one.
  return jnp.where(
      above.any(axis=-1), jnp.argmax(above, axis=-1), jnp.argmax(mass, axis=-1)
  )


def _nucleus(scaled: jax.Array, top_p: jax.Array) -> jax.Array:
  """Sets to -inf what lies below the nucleus of `scaled` [batch, entries, lanes].

  Bisects the bit patterns of the scores, which for values <= 0 fall as the
  score rises; 32 halvings make the threshold exact.
  """
  mass = jnp.exp(scaled)
  wanted = (top_p[:, None, None] * _reduce(jnp.sum, mass)).astype(jnp.float32)
  bits = jax.lax.bitcast_convert_type(jnp.minimum(scaled, -0.0), jnp.uint32)
  bits = jnp.where(scaled == 0, jnp.uint32(0x80000000), bits)

  def halve(_: int, bounds: tuple[jax.Array, jax.Array]):
    low, high = bounds  # mass(bits <= high) >= wanted; mass(bits < low) < wanted
    middle = low + (high - low) // 2
    enough = _reduce(jnp.sum, jnp.where(bits <= middle, mass, 0.0)) >= wanted
    return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

  shape = (scaled.shape[0], 1, 1)
  low = jnp.full(shape, 0x80000000, jnp.uint32)
  high = jnp.full(shape, 0xFF800000, jnp.uint32)  # -inf
  _, high = jax.lax.fori_loop(0, 31, halve, (low, high))
  keep = (bits <= high) | (top_p >= 1)[:, None, None]
  return jnp.where(keep, scaled, -jnp.inf)
