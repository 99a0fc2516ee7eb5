"""Matrix products with float32 accumulation, forward and backward.

`matmul` takes its operands in `dtype` (bfloat16 or float32) and adds up in
float32. Its gradient does the same: cotangents are cast to `dtype` before
their products, where JAX's own gradient of a mixed product would fall back to
float32 operands.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax.experimental.layout import Layout, with_layout_constraint

from clawgym_jax import parallel
from clawgym_jax.models.cache import loaded, stored
from clawgym_jax.models.layers.lora import Factor, LoraConfig

INIT_STDDEV = 0.02
_FEW_ROWS = 64


def row_major(x: jax.Array) -> jax.Array:
  """x, its last axis contiguous in memory where that matters (on one CPU device).

  XLA folds a transpose into the product next to it. On a CPU the product then
  runs 2 to 4 times slower, and one of bfloat16 operands whose float32 result
  is laid out transposed is not implemented at all.
  """
  if parallel.platform() != "cpu" or _meshed():
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
    out: jnp.dtype = jnp.float32,
) -> jax.Array:
  """Product of a and b over one axis each, batched over the first `batch` axes.

  Operands are cast to `dtype`, sums are float32, the result is of dtype `out`.
  """
  a, b = a.astype(dtype), b.astype(dtype)
  if parallel.platform() == "cpu" and _meshed():
    # Layouts are the partitioner's there, see `row_major`: bfloat16 numbers
    # are multiplied as float32, which gives the same sums, slower.
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
  batched = tuple(range(batch))
  return row_major(
      jax.lax.dot_general(
          a,
          b,
          (((axis_a % a.ndim,), (axis_b % b.ndim,)), (batched, batched)),
          precision="highest" if a.dtype == jnp.float32 else None,
          preferred_element_type=out,
      )
  )


def _meshed() -> bool:
  return not jax.sharding.get_abstract_mesh().empty


def matmul(
    x: jax.Array,
    weight: jax.Array,
    dtype: jnp.dtype,
    *,
    axes: tuple[str | None, ...] | None = None,
    narrow: bool = False,
) -> jax.Array:
  """x [..., in], weight [out, in] -> float32 [..., out].

  `axes` are the mesh axes that split the weight. It is gathered over `fsdp` for
  the product, after the cast to `dtype`; its gradient is cast before it is added
  up over devices, and left split as the weight is. With `narrow` an accelerator
  stores the result, and the gradients, in `dtype`: as narrow as the operands of
  the next product. On a CPU that would save nothing.
  """
  out = jnp.dtype(dtype if narrow and parallel.platform() != "cpu" else jnp.float32)
  return _matmul(x.astype(out), weight, jnp.dtype(dtype), axes, out)


def _product(x, weight, dtype, axes, out):
  rows = math.prod(x.shape[:-1])
  weight = gathered(weight, dtype, axes)
  if rows <= _FEW_ROWS and parallel.platform() == "cpu":
    # The weight first, read once as it lies; second, it would be repacked.
    found = dot(weight, x.reshape(rows, -1), 1, 1, dtype)
    return swap_last(found).reshape(*x.shape[:-1], -1)
  return dot(x, weight, -1, 1, dtype, out=out)


_matmul = jax.custom_vjp(_product, nondiff_argnums=(2, 3, 4))


def _matmul_forward(x, weight, dtype, axes, out):
  # Not `_matmul`: what is kept for the backward pass is chosen by product.
  return _product(x, weight, dtype, axes, out), (x.astype(dtype), weight)


def _matmul_backward(dtype, axes, out, saved, grad):
  x, weight = saved
  grad = grad.astype(dtype)
  dx = dot(grad, gathered(weight, dtype, axes), -1, 0, dtype, out=out)
  if axes is not None and _meshed():
    dweight = _split_gradient(x, grad, dtype, axes, out)
  else:
    across = swap_last(grad.reshape(-1, grad.shape[-1]))
    dweight = dot(across, x.reshape(-1, x.shape[-1]), 1, 0, dtype, out=out)
  return dx, dweight.astype(weight.dtype)


_matmul.defvjp(_matmul_forward, _matmul_backward)


def _split_gradient(x, grad, dtype, axes, out):
  """A weight's gradient [out, in], split over a mesh as the weight is.

  Every device multiplies its tokens and sends the parts of the others. That XLA
  would make a loop of the product and the sums, in which libtpu 0.0.52 fails.
  """
  inner, outer = (axis if axis == "tensor" else None for axis in (axes[1], axes[0]))
  x, grad = (v.reshape(-1, *v.shape[-2:]) for v in (x, grad))
  tokens = parallel.fitting(parallel.HIDDEN, x.shape)[:2]
  split = {axis for names in tokens if names for axis in jax.tree.leaves(names)}

  def local(x, grad):
    x, grad = (v.reshape(-1, v.shape[-1]) for v in (x, grad))
    if "fsdp" not in axes or "fsdp" not in split:
      summed = jax.lax.psum(dot(grad, x, 0, 0, dtype, out=out), tuple(sorted(split)))
      if "fsdp" not in axes:
        return summed
      at = axes.index("fsdp")
      size = summed.shape[at] // parallel.axis_size("fsdp")
      start = jax.lax.axis_index("fsdp") * size
      return jax.lax.dynamic_slice_in_dim(summed, start, size, at)
    # What is scattered lies along the outer dimension: along the inner one it
    # would be added up everywhere first.
    across = axes[1] == "fsdp"
    a, b = (x, grad) if across else (grad, x)
    part = jax.lax.psum_scatter(dot(a, b, 0, 0, dtype, out=out), "fsdp", tiled=True)
    part = jax.lax.psum(part, tuple(sorted(split - {"fsdp"})))
    return part.T if across else part

  specs = jax.P(*tokens, inner), jax.P(*tokens, outer)
  return jax.shard_map(
      local, in_specs=specs, out_specs=jax.P(*axes), check_vma=False
  )(x, grad)


def gathered(
    weight: jax.Array, dtype: jnp.dtype, axes: tuple[str | None, ...] | None
) -> jax.Array:
  """The weight in `dtype`, on a mesh whole but for what `tensor` splits."""
  weight = weight.astype(dtype)
  if axes is None or not _meshed():
    return weight
  # Cast where it lies, so that what is sent is as narrow as what is used.
  weight = jax.lax.with_sharding_constraint(weight, jax.P(*axes))
  kept = (axis if axis == "tensor" else None for axis in axes)
  return jax.lax.with_sharding_constraint(weight, jax.P(*kept))


class Linear(nnx.Module):
  """y = x @ weight^T + bias, weight [out, in]; stacked [layers, out, in] if `layers`.

  Args:
    in_features, out_features: sizes of x and y.
    name: the module's own, by which LoRA's targets find it.
    axes: mesh axes of weight's two dimensions.
    bias: whether there is one, [out].
    layers: how many are stacked.
    rngs, param_dtype: initial values.
    compute_dtype: of the operands.
    lora: adds scale * (x @ lora_A^T) @ lora_B^T where `name` is a target.
  """

  def __init__(
      self,
      in_features: int,
      out_features: int,
      *,
      name: str,
      axes: tuple[str | None, str | None],
      bias: bool = False,
      layers: int | None = None,
      rngs: nnx.Rngs,
      param_dtype: jnp.dtype,
      compute_dtype: jnp.dtype,
      lora: LoraConfig | None = None,
  ):
    self.compute_dtype = compute_dtype
    self.axes = axes
    stack = () if layers is None else (layers,)
    shape = (*stack, out_features, in_features)
    key = rngs.params()
    value = jax.random.normal(key, shape, param_dtype) * INIT_STDDEV
    self.weight = parallel.param(value.astype(param_dtype), *axes)
    if bias:
      zeros = jnp.zeros((*stack, out_features), param_dtype)
      self.bias = parallel.param(zeros, axes[0])
    self.has_bias = bias
    self.lora = lora if lora is not None and name in lora.targets else None
    if self.lora is not None:
      # From the weight's own key: the other weights are those without LoRA.
      self.lora_A = Factor.uniform(
          jax.random.fold_in(key, 1),
          (*stack, self.lora.rank, in_features),
          (None, axes[1]),
          param_dtype,
      )
      self.lora_B = Factor.zeros(
          (*stack, out_features, self.lora.rank), (axes[0], None), param_dtype
      )

  def __call__(self, x: jax.Array) -> jax.Array:
    """x [..., in] -> [..., out], see `matmul`."""
    how = {"dtype": self.compute_dtype, "narrow": True}
    out = matmul(x, self.weight[...], axes=self.axes, **how)
    if self.lora is not None:
      inner = matmul(x, self.lora_A.weight[...], **how)
      change = matmul(inner, self.lora_B.weight[...], **how)
      out = out + self.lora.scale * change
    if self.has_bias:
      out = out + self.bias[...].astype(out.dtype)
    return out


class Embedding(nnx.Module):
  """Token vectors, weight [vocab, hidden], times `scale`."""

  def __init__(
      self,
      vocab_size: int,
      hidden_size: int,
      *,
      scale: float = 1.0,
      rngs: nnx.Rngs,
      param_dtype: jnp.dtype,
  ):
    self.scale = scale
    shape = (vocab_size, hidden_size)
    value = jax.random.normal(rngs.params(), shape, param_dtype) * INIT_STDDEV
    self.weight = parallel.param(value.astype(param_dtype), "tensor", "fsdp")

  def __call__(self, tokens: jax.Array) -> jax.Array:
    """tokens [...] -> float32 [..., hidden]."""
    weight = self.weight[...]
    if weight.dtype == jnp.bfloat16:
      # As bits, and tied to the tokens: XLA on a CPU would widen the whole
      # table first, or copy it ahead of a decode loop.
      weight, tokens = jax.lax.optimization_barrier((weight, tokens))
    rows = jnp.take(stored(weight), tokens, axis=0)
    rows = loaded(rows).astype(jnp.float32)
    return rows if self.scale == 1.0 else rows * self.scale
