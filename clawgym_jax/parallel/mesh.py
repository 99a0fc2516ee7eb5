"""The mesh axes, and parameters that carry their sharding from birth.

Every mesh has the five axes of `AXES` with `AxisType.Auto`; an axis that is
not used has size 1. `param` writes a parameter's sharding where the parameter
is created: under `jax.set_mesh(mesh)` the value is laid out at once, without
a mesh the annotation is only kept, so that one device needs no mesh at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
