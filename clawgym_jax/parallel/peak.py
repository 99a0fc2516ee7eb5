"""The most floating-point operations a second that the devices could do.

Of an accelerator what its vendor states for dense bfloat16 products, a chip; of a
CPU what a large product of matrices reaches there and then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp

CHIPS = {
    # Cloud TPU's system architecture pages; NVIDIA's data sheets, SXM, no sparsity.
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,  # v5e
    "TPU v5": 459e12,  # v5p
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,  # v6e
    "TPU7x": 2307e12,
    "NVIDIA A100": 312e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200": 989e12,
    "NVIDIA B200": 2250e12,
}
"""By what JAX calls the device, or the beginning of it."""
_SIZE = 2048
_TIMES = 5


def peak_flops(devices: Sequence[jax.Device], dtype: jnp.dtype) -> float | None:
  """Of all `devices` together; None where the kind is not known.

  Simulated devices of one CPU share what it has. `dtype` is that of the operands,
  which matters on a CPU alone.
  """
  if devices[0].platform == "cpu":
    return matmul_rate(dtype)
  kind = devices[0].device_kind
  known = [name for name in CHIPS if kind.startswith(name)]
  return CHIPS[max(known, key=len)] * len(devices) if known else None


def matmul_rate(dtype: jnp.dtype) -> float:
  """Operations a second of a product of two square matrices, the best of a few."""
  with jax.set_mesh(jax.make_mesh((1,), ("one",), devices=jax.devices()[:1])):
    a = jnp.ones((_SIZE, _SIZE), dtype)
    how = {"precision": "highest", "preferred_element_type": jnp.float32}
    product = jax.jit(lambda a: jnp.matmul(a, a, **how))
    jax.block_until_ready(product(a))
    best = float("inf")
    for _ in range(_TIMES):
      start = time.perf_counter()
      jax.block_until_ready(product(a))
      best = min(best, time.perf_counter() - start)
  return 2 * _SIZE**3 / best
