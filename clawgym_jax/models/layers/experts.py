"""A mixture's experts: every token goes through the experts chosen for it alone.

No token is dropped and no capacity is set: tokens are sorted by expert and
multiplied group by group. Under a mesh every device computes the part of its
tokens' result that its experts, and its share of their inner dimension, give;
the parts are added up over the axes `expert` and `tensor`.

Where tokamax is installed on an accelerator its kernel multiplies forward and
for the gradient of the tokens. The gradient of the weights, a sum over the rows
of each group, stays XLA's `ragged_dot_general` everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from clawgym_jax import parallel
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.layers.linear import INIT_STDDEV

_SUM_GROUP = jax.lax.RaggedDotDimensionNumbers(
    dot_dimension_numbers=(((0,), (0,)), ((), ())),
    lhs_ragged_dimensions=(0,),
    rhs_group_dimensions=(),
)
"""[rows, a] and [rows, b] -> [groups, a, b]: a sum over each group's rows."""


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def grouped_matmul(
    x: jax.Array, weight: jax.Array, sizes: jax.Array, dtype: jnp.dtype
) -> jax.Array:
  """x [rows, in], weight [groups, out, in], sizes int32 [groups] -> float32 [rows, out].

  The first sizes[0] rows are multiplied by weight[0]^T, the next sizes[1] by
  weight[1]^T, and so on; rows past the last group give 0. Operands are cast
  to `dtype`, forward and backward, sums are float32.
  """
  return _product(x, weight.swapaxes(1, 2), sizes, dtype)


def _grouped_forward(x, weight, sizes, dtype):
  return grouped_matmul(x, weight, sizes, dtype), (x.astype(dtype), weight, sizes)


def _grouped_backward(dtype, saved, grad):
  x, weight, sizes = saved
  dx = _product(grad, weight, sizes, dtype)
  grad, rows = _operand(grad, dtype), _operand(x, dtype)
  dweight = jax.lax.ragged_dot_general(
      grad, rows, sizes, _SUM_GROUP, **_accumulation(grad)
  )
  return dx, dweight.astype(weight.dtype), None


grouped_matmul.defvjp(_grouped_forward, _grouped_backward)


def _product(x, weight, sizes, dtype):
  """x [rows, in], weight [groups, in, out] -> float32 [rows, out]."""
  x, weight = _operand(x, dtype), _operand(weight, dtype)
  out = _ragged_dot()(x, weight, sizes, **_accumulation(x))
  # A kernel may leave what it likes in rows of no group.
  return jnp.where(jnp.arange(x.shape[0])[:, None] < jnp.sum(sizes), out, 0.0)


def _operand(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
  x = x.astype(dtype)
  # A product of bfloat16 with a float32 result is not implemented for every
  # layout on a CPU; rounded operands as float32 give the same sums.
  return x.astype(jnp.float32) if parallel.platform() == "cpu" else x


def _accumulation(x: jax.Array) -> dict[str, object]:
  precision = "highest" if x.dtype == jnp.float32 else None
  return {"precision": precision, "preferred_element_type": jnp.float32}


def _ragged_dot() -> Callable[..., jax.Array]:
  """The grouped product: on an accelerator tokamax's kernel, if it is installed."""
  if parallel.platform() != "cpu":
    try:
      import tokamax
    except ImportError:
      pass
    else:
      return tokamax.ragged_dot
  return jax.lax.ragged_dot


class ExpertLinear(nnx.Module):
  """One linear layer of every expert, weight [experts, out, in]."""

  def __init__(
      self,
      experts: int,
      in_features: int,
      out_features: int,
      *,
      axes: tuple[str | None, str | None],
      layers: int | None,
      rngs: nnx.Rngs,
      param_dtype: jnp.dtype,
  ):
    shape = (experts, out_features, in_features)
    shape = shape if layers is None else (layers, *shape)
    value = jax.random.normal(rngs.params(), shape, param_dtype) * INIT_STDDEV
    self.spec = jax.P("expert", *axes)
    self.weight = parallel.param(value.astype(param_dtype), *self.spec)

  def laid_out(self) -> jax.Array:
    """The weight, it and so its gradient split as `spec` says."""
    return jax.lax.with_sharding_constraint(self.weight[...], self.spec)


class Experts(nnx.Module):
  """down(silu(gate(x)) * up(x)) of each token's experts, weighted and added up."""

  def __init__(
      self,
      config: ModelConfig,
      *,
      layers: int | None,
      rngs: nnx.Rngs,
      param_dtype: jnp.dtype,
      compute_dtype: jnp.dtype,
  ):
    count, size = config.num_experts, config.hidden_size
    inner = config.moe_intermediate_size
    _check_mesh(count, inner)
    kw = {"layers": layers, "rngs": rngs, "param_dtype": param_dtype}
    self.compute_dtype = compute_dtype
    self.gate_proj = ExpertLinear(count, size, inner, axes=("tensor", "fsdp"), **kw)
    self.up_proj = ExpertLinear(count, size, inner, axes=("tensor", "fsdp"), **kw)
    self.down_proj = ExpertLinear(count, inner, size, axes=("fsdp", "tensor"), **kw)

  def __call__(
      self, x: jax.Array, chosen: jax.Array, shares: jax.Array
  ) -> jax.Array:
    """x [batch, time, hidden], chosen int32 and shares float32 [batch, time, k].

    Gives the sum of the chosen experts' outputs, each times its share,
    float32 [batch, time, hidden].
    """
    linears = self.gate_proj, self.up_proj, self.down_proj
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
      weights = tuple(linear.weight[...] for linear in linears)
      return _of_experts(x, chosen, shares, weights, 0, self.compute_dtype)
    weights = tuple(linear.laid_out() for linear in linears)
    tokens = _token_axes(x)
    spec = jax.P(*tokens, None)
    split = jax.P("expert", "tensor", None), jax.P("expert", None, "tensor")
    # Every operand is marked as different on every axis in use, so that the
    # gradients of what is not are added up over the axes.
    rows = tuple(axis for axes in tokens if axes for axis in axes)
    differ = partial(jax.lax.pcast, to="varying")

    def part(x, chosen, shares, weights):
      first = jax.lax.axis_index("expert") * weights[0].shape[0]
      x, chosen, shares = (
          differ(v, ("expert", "tensor")) for v in (x, chosen, shares)
      )
      first = differ(first, ("tensor", *rows))
      if rows:
        weights = tuple(differ(weight, rows) for weight in weights)
      out = _of_experts(x, chosen, shares, weights, first, self.compute_dtype)
      return jax.lax.psum(out, ("expert", "tensor"))

    return jax.shard_map(
        part,
        in_specs=(spec, spec, spec, (split[0], split[0], split[1])),
        out_specs=spec,
        # A Pallas kernel does not say over which axes its result differs.
        check_vma=_ragged_dot() is jax.lax.ragged_dot,
    )(x, chosen, shares, weights)


def _of_experts(x, chosen, shares, weights, first, dtype):
  """What the experts `first` and following, given by `weights`, add."""
  gate, up, down = weights
  count = gate.shape[0]
  k = chosen.shape[-1]
  tokens = x.reshape(-1, x.shape[-1])
  expert = chosen.reshape(-1) - first
  # Experts of other devices come last, in no group.
  expert = jnp.where((expert >= 0) & (expert < count), expert, count)
  sizes = jnp.zeros_like(expert, shape=count).at[expert].add(1, mode="drop")
  order = jnp.argsort(expert)
  rows = tokens[order // k]
  inner = jax.nn.silu(grouped_matmul(rows, gate, sizes, dtype))
  inner = inner * grouped_matmul(rows, up, sizes, dtype)
  out = grouped_matmul(inner, down, sizes, dtype)
  out = out * shares.reshape(-1)[order][:, None]
  return out[jnp.argsort(order)].reshape(-1, k, x.shape[-1]).sum(1).reshape(x.shape)


def _token_axes(x: jax.Array) -> tuple[tuple[str, ...] | None, ...]:
  """The mesh axes of batch and time, as `parallel.HIDDEN` where they divide evenly."""
  axes = ("data", "fsdp"), ("context",)
  return tuple(
      names if size % parallel.axis_size(*names) == 0 else None
      for size, names in zip(x.shape, axes)
  )


def _check_mesh(experts: int, inner: int) -> None:
  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty:
    return
  for axis, size, what in (
      ("expert", experts, "experts"),
      ("tensor", inner, "dimensions of an expert"),
  ):
    if size % mesh.shape[axis]:
      raise UserError(
          f"{size} {what} can't be split over {mesh.shape[axis]} devices of the"
          f" mesh axis {axis!r}: choose a divisor"
      )
