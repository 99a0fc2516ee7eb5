"""Cloud TPU topologies by name, and what their chips can do.

`describe` gives the devices of a topology that is not here: programs can be
compiled for them, with the package libtpu, and never run. A name is that of Cloud
TPU (v5p-64: v4 and v5p count TensorCores, two a chip; v5e-16 and v6e-256 count
chips) or says the shape, as v5p:2x4x4 does.

Figures of chips: cloud.google.com/tpu/docs (system architecture of each version)
for memory and its bandwidth; jax-ml.github.io/scaling-book for the bandwidth of a
link in one direction; operations are `peak`'s.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass

import jax

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.parallel import peak


@dataclass(frozen=True)
class Chip:
  """One kind of TPU chip, which is one device of JAX.

  Attributes:
    kind: what JAX calls the device.
    hbm_bytes, hbm_bandwidth: memory, and bytes a second from it.
    link_bandwidth: bytes a second of one link in one direction.
    axes: of its torus; every chip has two links along each.
    cores: that Cloud TPU's names count of a chip.
    name: of its chip in libtpu, and its configuration there.
  """

  kind: str
  hbm_bytes: int
  hbm_bandwidth: float
  link_bandwidth: float
  axes: int
  cores: int
  name: str
  config: str

  @property
  def flops(self) -> float:
    """Of bfloat16 products, a second."""
    return peak.CHIPS[self.kind]


_GIB = 2**30
CHIPS = {
    "v4": Chip("TPU v4", 32 * _GIB, 1.2e12, 4.5e10, 3, 2, "v4", "megacore"),
    "v5e": Chip("TPU v5 lite", 16 * _GIB, 8.1e11, 4.5e10, 2, 1, "v5e", "default"),
    "v5p": Chip("TPU v5", 95 * _GIB, 2.765e12, 9e10, 3, 2, "v5p", "megacore"),
    "v6e": Chip("TPU v6 lite", 32 * _GIB, 1.64e12, 9e10, 2, 1, "v6e", "default"),
}
_SAME = {"v5litepod": "v5e", "v6litepod": "v6e"}
_NAME = re.compile(r"(\w+?)(?:-(\d+)|:(\d+(?:x\d+){1,2}))")


@dataclass(frozen=True)
class Topology:
  """Chips in a torus of `shape`."""

  name: str
  chip: Chip
  shape: tuple[int, ...]

  @property
  def devices(self) -> int:
    return math.prod(self.shape)


def parse(name: str) -> Topology:
  """The topology that Cloud TPU calls so; `UserError` where there is none."""
  found = _NAME.fullmatch(name)
  kind = found and _SAME.get(found[1], found[1])
  if kind not in CHIPS:
    raise UserError(
        f"--topology={name} is no TPU: write {', '.join(sorted(CHIPS))} with a size"
        " (v5p-64, v6e-256) or a shape (v5p:2x4x4)"
    )
  chip = CHIPS[kind]
  if found[3]:
    shape = tuple(int(size) for size in found[3].split("x"))
    if len(shape) != chip.axes:
      raise UserError(f"--topology={name}: a {kind} slice has {chip.axes} dimensions")
    return Topology(name, chip, shape)
  count, rest = divmod(int(found[2]), chip.cores)
  shape = _shape(count, chip.axes) if count and not rest else None
  if shape is None:
    raise UserError(
        f"--topology={name}: {kind} slices have a power of two of chips from"
        f" {4 if chip.axes == 3 else 1} on, {chip.cores} to a chip in the name; say"
        " another shape as in v5p:2x4x4"
    )
  return Topology(name, chip, shape)


def _shape(count: int, axes: int) -> tuple[int, ...] | None:
  """As near to a cube or a square as a power of two allows, short sides first."""
  power = count.bit_length() - 1
  if count != 1 << power or (axes == 3 and count < 4):
    return None
  if count == 4 and axes == 3:
    return (2, 2, 1)
  short, long = divmod(power, axes)
  sizes = [1 << (short + (place >= axes - long)) for place in range(axes)]
  return tuple(sizes)


def describe(topology: Topology) -> list[jax.Device]:
  """Its devices, for a mesh that is compiled for; `UserError` without libtpu."""
  os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # no machine of Cloud TPU to ask
  os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # no TPU is taken
  # What libtpu would otherwise look for, and complain of, on this machine.
  os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5p-8")
  os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
  from jax.experimental import topologies

  host = (2, 2, 1) if topology.devices % 4 == 0 else (1, 1, 1)
  try:
    found = topologies.get_topology_desc(
        platform="tpu",
        topology_name=f"{topology.chip.name}:{'x'.join(map(str, topology.shape))}",
        chip_config_name=topology.chip.config,
        chips_per_host_bounds=host,
        num_slices=1,
    )
  except Exception as error:  # whatever libtpu raises
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "libtpu" in str(error) and "libtpu_path" not in str(error):
      text += ": install it with `pip install 'clawgym-jax[aot]'`"
    raise UserError(f"no devices of {topology.name} to compile for: {text}") from error
  return list(found.devices)
