"""Which type the matrix products of this machine are faster in.

bfloat16 halves what a decode step reads, but a CPU without bfloat16 units
takes many times longer over it. One timed product decides.
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models.config import ModelConfig

CHOICES = ("auto", "float32", "bfloat16")


def choose(name: str, config: ModelConfig, rows: int) -> tuple[jnp.dtype, str]:
  """The compute dtype and why, in a sentence for the log.

  Args:
    name: one of `CHOICES`; "auto" times one product [rows, hidden] x [hidden,
      intermediate] in each type, float32 accumulation, and takes the faster.
  """
  if name not in CHOICES:
    raise UserError(f"--compute_dtype={name}: use one of {', '.join(CHOICES)}")
  if name != "auto":
    return jnp.dtype(name), f"compute dtype {name}, as asked"
  shape = config.hidden_size, config.intermediate_size
  seconds = {
      dtype: _seconds(rows, *shape, dtype) for dtype in ("float32", "bfloat16")
  }
  best = min(seconds, key=seconds.get)
  timings = ", ".join(f"{dtype} {1e6 * s:.0f} us" for dtype, s in seconds.items())
  return jnp.dtype(best), (
      f"compute dtype {best}: a product of {rows} x {shape[0]} x {shape[1]}"
      f" takes {timings}"
  )


def _seconds(rows: int, inner: int, columns: int, dtype: str) -> float:
  """The best of some runs."""
  product = jax.jit(lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32))
  a, b = jnp.ones((rows, inner), dtype), jnp.ones((inner, columns), dtype)
  jax.block_until_ready(product(a, b))
  times = []
  for _ in range(10):
    start = time.perf_counter()
    jax.block_until_ready(product(a, b))
    times.append(time.perf_counter() - start)
  return min(times)
