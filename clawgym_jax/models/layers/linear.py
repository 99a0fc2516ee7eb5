"""Matrix products with float32 accumulation, forward and backward.

`matmul` takes its operands in `dtype` (bfloat16 or float32) and adds up in
float32. Its gradient does the same: cotangents are cast to `dtype` before
their products, where JAX's own gradient of a mixed product would fall back to
float32 operands.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax.experimental.layout import Layout, with_layout_constraint

from clawgym_jax import parallel

INIT_STDDEV = 0.02


def row_major(x: jax.Array) -> jax.Array:
  """x, its last axis contiguous in memory where that matters (on a CPU).

  XLA folds a transpose into the product next to it. On a CPU the product then
  runs 2 to 4 times slower, and one of bfloat16 operands whose float32 result
  is laid out transposed is not implemented at all.
  """
  if jax.default_backend() != "cpu" or not jax.sharding.get_abstract_mesh().empty:
    return x
  return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


def swap_last(x: jax.Array) -> jax.Array:
  """x [..., a, b] -> [..., b, a], moved in memory where that is faster."""
  return row_major(jnp.swapaxes(x, -1, -2))


def dot(
    a: jax.Array,
    b: jax.Array,
    axis_a: int,
    axis_b: int,
    dtype: jnp.dtype,
    *,
    batch: int = 0,
) -> jax.Array:
  """Product of a and b over one axis each, batched over the first `batch` axes.

  Operands are cast to `dtype`, sums and the result are float32.
  """
  batched = tuple(range(batch))
  return row_major(
      jax.lax.dot_general(
          a.astype(dtype),
          b.astype(dtype),
          (((axis_a % a.ndim,), (axis_b % b.ndim,)), (batched, batched)),
          precision="highest" if dtype == jnp.float32 else None,
          preferred_element_type=jnp.float32,
      )
  )


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def matmul(x: jax.Array, kernel: jax.Array, dtype: jnp.dtype) -> jax.Array:
  """x [..., in], kernel [in, out] -> float32 [..., out]."""
  return dot(x, kernel, -1, 0, dtype)


def _matmul_forward(x, kernel, dtype):
  return dot(x, kernel, -1, 0, dtype), (x.astype(dtype), kernel)


def _matmul_backward(dtype, saved, grad):
  x, kernel = saved
  grad = grad.astype(dtype)
  dx = dot(grad, kernel, -1, 1, dtype)
  rows = x.reshape(-1, x.shape[-1])
  dkernel = dot(swap_last(rows), grad.reshape(-1, grad.shape[-1]), 1, 0, dtype)
  return dx, dkernel.astype(kernel.dtype)


matmul.defvjp(_matmul_forward, _matmul_backward)


class Linear(nnx.Module):
  """y = x @ kernel, kernel [in, out]; stacked [layers, in, out] if `layers`."""

  def __init__(
      self,
      in_features: int,
      out_features: int,
      *,
      axes: tuple[str | None, str | None],
      layers: int | None = None,
      rngs: nnx.Rngs,
      param_dtype: jnp.dtype,
      compute_dtype: jnp.dtype,
  ):
    self.compute_dtype = compute_dtype
    shape = (in_features, out_features)
    shape = shape if layers is None else (layers, *shape)
    value = jax.random.normal(rngs.params(), shape, param_dtype) * INIT_STDDEV
    self.kernel = parallel.param(value.astype(param_dtype), *axes)

  def __call__(self, x: jax.Array) -> jax.Array:
    """x [..., in] -> float32 [..., out]."""
    return matmul(x, self.kernel[...], self.compute_dtype)


class Embedding(nnx.Module):
  """Token vectors, weight [vocab, hidden]."""

  def __init__(
      self,
      vocab_size: int,
      hidden_size: int,
      *,
      rngs: nnx.Rngs,
      param_dtype: jnp.dtype,
  ):
    shape = (vocab_size, hidden_size)
    value = jax.random.normal(rngs.params(), shape, param_dtype) * INIT_STDDEV
    self.weight = parallel.param(value.astype(param_dtype), "tensor", "fsdp")

  def __call__(self, tokens: jax.Array) -> jax.Array:
    """tokens [...] -> float32 [..., hidden]."""
    return jnp.take(self.weight[...], tokens, axis=0).astype(jnp.float32)
