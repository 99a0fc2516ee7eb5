"""The mesh axes, and parameters that carry their sharding from birth.

Every mesh has the five axes of `AXES` with `AxisType.Auto`; an axis that is
not used has size 1. `param` writes a parameter's sharding where the parameter
is created: under `jax.set_mesh(mesh)` the value is laid out at once, without
a mesh the annotation is only kept, so that one device needs no mesh at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh, PartitionSpec

from clawgym_jax.contracts.errors import UserError

AXES = ("data", "fsdp", "expert", "context", "tensor")
BATCH = PartitionSpec(("data", "fsdp"))
"""Rows of a batch, [batch, ...]."""
HIDDEN = PartitionSpec(("data", "fsdp"), "context", None)
"""Activations between layers, [batch, time, hidden]."""


def make_mesh(
    *,
    data: int = 1,
    fsdp: int = 1,
    expert: int = 1,
    context: int = 1,
    tensor: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
  """A mesh over `devices` (all by default) with the given axis sizes.

  One size may be -1: what the other axes leave. Raises `UserError` where the
  sizes do not multiply to the number of devices.
  """
  devices = list(jax.devices() if devices is None else devices)
  sizes = [data, fsdp, expert, context, tensor]
  if sizes.count(-1) == 1:
    rest = math.prod(size for size in sizes if size != -1)
    sizes[sizes.index(-1)] = len(devices) // rest
  if min(sizes) < 1 or math.prod(sizes) != len(devices):
    shape = dict(zip(AXES, sizes))
    raise UserError(
        f"mesh {shape} needs {math.prod(sizes)} devices and {len(devices)} are"
        " here: change the axis sizes so that their product is that number"
    )
  grid = np.asarray(devices).reshape(sizes)
  return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def platform() -> str:
  """What is computed on, `cpu`, `gpu` or `tpu`: the mesh's devices, else JAX's own.

  A mesh of a topology whose hardware is not here counts as that hardware, so
  that what is compiled ahead of time is what will run there.
  """
  device = jax.sharding.get_abstract_mesh().abstract_device
  return jax.default_backend() if device is None else device.platform


def axis_size(*names: str) -> int:
  """Devices along some axes of the mesh in use; 1 without one."""
  sizes = jax.sharding.get_abstract_mesh().shape
  return math.prod(sizes.get(name, 1) for name in names)


def fitting(spec: PartitionSpec, shape: Sequence[int]) -> PartitionSpec:
  """`spec` without the axes that do not divide the dimension they should split."""
  return PartitionSpec(*(
      axes if axes and size % axis_size(*_names(axes)) == 0 else None
      for size, axes in zip(shape, spec)
  ))


def _names(axes: str | tuple[str, ...]) -> tuple[str, ...]:
  return (axes,) if isinstance(axes, str) else axes


def laid_out(hidden: jax.Array) -> jax.Array:
  """Activations [batch, time, hidden], split as `HIDDEN` says where it fits."""
  if jax.sharding.get_abstract_mesh().empty:
    return hidden
  return jax.lax.with_sharding_constraint(hidden, fitting(HIDDEN, hidden.shape))


def on_mesh(
    function: Callable[..., Any], in_specs: Sequence[Any], out_specs: Any
) -> Callable[..., Any]:
  """`function` of each device's shards; of the whole arrays without a mesh.

  Each spec is fitted to the first operand that has it; `out_specs` are some of
  those. For functions that add up over devices what they have to: nothing
  checks over which axes a result differs (a Pallas kernel could not say).
  """
  if jax.sharding.get_abstract_mesh().empty:
    return function

  def call(*operands: Any) -> Any:
    found: dict[PartitionSpec, PartitionSpec] = {}

    def fit(spec: PartitionSpec, operand: jax.Array) -> PartitionSpec:
      return found.setdefault(spec, fitting(spec, operand.shape))

    ins = jax.tree.map(fit, tuple(in_specs), operands, is_leaf=_is_spec)
    outs = jax.tree.map(found.__getitem__, out_specs, is_leaf=_is_spec)
    return jax.shard_map(function, in_specs=ins, out_specs=outs, check_vma=False)(
        *operands
    )

  return call


def _is_spec(x: Any) -> bool:
  return isinstance(x, PartitionSpec)


def param(value: jax.Array, *axes: str | None) -> nnx.Param:
  """A parameter whose last dimensions are split over the mesh axes `axes`.

  Dimensions in front of them (the stacked layers) stay whole. Raises `UserError`
  where an axis of the mesh in use does not divide its dimension.
  """
  spec = PartitionSpec(*(None,) * (value.ndim - len(axes)), *axes)
  mesh = jax.sharding.get_abstract_mesh()
  meshed = not mesh.empty
  for size, axis in zip(value.shape, spec, strict=True):
    if meshed and axis is not None and size % mesh.shape[axis]:
      raise UserError(
          f"a weight of shape {value.shape} can't be split over {mesh.shape[axis]}"
          f" devices of the mesh axis {axis!r}: choose a divisor of {size} for"
          f" mesh.{axis}"
      )
  return nnx.Param(value, out_sharding=spec, eager_sharding=meshed)
