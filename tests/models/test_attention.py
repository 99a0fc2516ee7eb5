"""Attention agrees with the dense definition, value and gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clawgym_jax.models.layers.attention import (
    Window,
    cached_attention,
    tree_attention,
)


def dense(query, key, value, mask):
  """Softmax attention by definition; mask [batch, time, time]."""
  groups = query.shape[2] // key.shape[2]
  key, value = jnp.repeat(key, groups, 2), jnp.repeat(value, groups, 2)
  scores = jnp.einsum("bthd,bshd->bhts", query, key, precision="highest")
  scores = scores / np.sqrt(query.shape[-1])
  scores = jnp.where(mask[:, None], scores, -jnp.inf)
  weights = jax.nn.softmax(scores, -1)
  return jnp.einsum("bhts,bshd->bthd", weights, value, precision="highest")


def nested_ends(rng: np.random.Generator, time: int) -> np.ndarray:
  """A random forest in pre-order: end[j] is one past j's subtree."""
  end = np.zeros(time, np.int32)

  def fill(start: int, stop: int) -> None:
    while start < stop:
      end[start] = rng.integers(start + 1, stop + 1)
      fill(start + 1, end[start])
      start = end[start]

  fill(0, time)
  return end


def inputs(batch, time, heads, kv_heads, dim, seed=0):
  rng = np.random.default_rng(seed)
  shapes = [(batch, time, heads, dim)] + [(batch, time, kv_heads, dim)] * 2
  qkv = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]
  end = np.stack([nested_ends(rng, time) for _ in range(batch)])
  i, j = np.arange(time)[:, None], np.arange(time)[None, :]
  mask = (j <= i) & (i < end[:, None, :])
  return qkv, jnp.asarray(end), jnp.asarray(mask)


@pytest.mark.parametrize("time", [7, 128, 300])
@pytest.mark.parametrize("dtype,tolerance", [("float32", 2e-5), ("bfloat16", 4e-2)])
def test_tree_mask_value_and_gradient(time, dtype, tolerance):
  qkv, end, mask = inputs(2, time, 6, 2, 16)

  def loss(attend, qkv):
    out = attend(*qkv)
    return jnp.sum(jnp.sin(out) * out), out

  ours = jax.jit(jax.grad(lambda qkv: loss(
      lambda *qkv: tree_attention(*qkv, end, jnp.dtype(dtype)), qkv), has_aux=True))
  reference = jax.jit(jax.grad(lambda qkv: loss(
      lambda *qkv: dense(*qkv, mask), qkv), has_aux=True))
  grads, out = ours(qkv)
  expected_grads, expected = reference(qkv)
  np.testing.assert_allclose(out, expected, atol=tolerance, rtol=tolerance)
  for grad, want in zip(grads, expected_grads):
    scale = float(jnp.max(jnp.abs(want)))
    np.testing.assert_allclose(grad / scale, want / scale, atol=tolerance)


@pytest.mark.parametrize("time,size", [(7, 1), (128, 5), (300, 40)])
def test_a_window_counts_positions_along_the_path(time, size):
  qkv, end, mask = inputs(2, time, 6, 2, 16)
  # A token's depth: the number of tokens that it sees, itself left out.
  positions = mask.sum(axis=-1) - 1
  mask &= positions[:, :, None] - positions[:, None, :] < size
  window = Window(positions, jnp.int32(size))

  def loss(attend, qkv):
    out = attend(*qkv)
    return jnp.sum(jnp.sin(out) * out), out

  ours = jax.jit(jax.grad(lambda qkv: loss(
      lambda *qkv: tree_attention(*qkv, end, jnp.float32, scale=0.3, window=window),
      qkv), has_aux=True))
  reference = jax.jit(jax.grad(lambda qkv: loss(
      lambda q, k, v: dense(q * 0.3 * 4, k, v, mask), qkv), has_aux=True))
  grads, out = ours(qkv)
  expected_grads, expected = reference(qkv)
  np.testing.assert_allclose(out, expected, atol=2e-5, rtol=2e-5)
  for grad, want in zip(grads, expected_grads):
    scale = max(1.0, float(jnp.max(jnp.abs(want))))  # a window of 1 gives zeros
    np.testing.assert_allclose(grad / scale, want / scale, atol=2e-5)


def test_packed_segments_do_not_see_each_other():
  qkv, _, _ = inputs(1, 12, 4, 2, 8)
  end = jnp.asarray([[5] * 5 + [12] * 7], jnp.int32)
  both = tree_attention(*qkv, end, jnp.dtype("float32"))
  alone = [x[:, 5:] for x in qkv]
  second = tree_attention(
      *alone, jnp.full((1, 7), 7, jnp.int32), jnp.dtype("float32")
  )
  np.testing.assert_allclose(both[:, 5:], second, atol=1e-6)


@pytest.mark.parametrize("slots", [11, 64])  # the last one is reserved
def test_cached_attention_sees_slots_up_to_the_position(slots):
  (query, key, value), _, _ = inputs(2, 10, 6, 2, 16)
  positions = jnp.asarray([[9], [4]])
  rows = jnp.arange(2)[:, None]
  unused = ((0, 0), (0, slots - 10), (0, 0), (0, 0))
  keys = jnp.pad(key, unused, constant_values=9.0).transpose(0, 2, 3, 1)
  values = jnp.pad(value, unused, constant_values=9.0).transpose(0, 2, 1, 3)
  out = cached_attention(
      query[rows, positions], keys, values, positions, jnp.dtype("float32")
  )
  causal = jnp.tril(jnp.ones((2, 10, 10), bool))
  expected = dense(query, key, value, causal)[rows, positions]
  np.testing.assert_allclose(out, expected, atol=1e-5)


def test_a_window_of_the_cache():
  (query, key, value), _, _ = inputs(2, 10, 6, 2, 16)
  positions = jnp.asarray([[9], [4]])
  rows = jnp.arange(2)[:, None]
  unused = ((0, 0), (0, 6), (0, 0), (0, 0))
  keys = jnp.pad(key, unused, constant_values=9.0).transpose(0, 2, 3, 1)
  values = jnp.pad(value, unused, constant_values=9.0).transpose(0, 2, 1, 3)
  out = cached_attention(
      query[rows, positions], keys, values, positions, jnp.dtype("float32"), window=3
  )
  back = np.arange(10)[:, None] - np.arange(10)
  mask = jnp.asarray(np.broadcast_to((back >= 0) & (back < 3), (2, 10, 10)))
  expected = dense(query, key, value, mask)[rows, positions]
  np.testing.assert_allclose(out, expected, atol=1e-5)


def test_a_narrow_query_is_scaled_as_a_wide_one():
  """Training and decoding both: no factor is rounded to the query's dtype."""
  (query, key, value), _, _ = inputs(1, 8, 4, 2, 24)  # 24 ** -0.5 needs its bits
  narrow = query.astype(jnp.bfloat16)
  end = jnp.full((1, 8), 8, jnp.int32)
  positions = jnp.arange(8)[None]
  pad = ((0, 0), (0, 1), (0, 0), (0, 0))
  keys = jnp.pad(key, pad).transpose(0, 2, 3, 1)
  values = jnp.pad(value, pad).transpose(0, 2, 1, 3)
  dtype = jnp.dtype("float32")
  for attend in (
      lambda query: tree_attention(query, key, value, end, dtype),
      lambda query: cached_attention(query, keys, values, positions, dtype),
  ):
    np.testing.assert_array_equal(attend(narrow), attend(narrow.astype(jnp.float32)))
