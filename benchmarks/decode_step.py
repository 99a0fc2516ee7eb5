"""Seconds of a decode step of a SmolLM2-135M-shaped model, against its bound.

A step makes one token for each of `rows` sequences. The bound is the time to
read every weight and the used part of the cache once at the memory bandwidth
that this run measures. Random weights: the time does not depend on them.

  python -m benchmarks.decode_step [--json]
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from absl import flags
from flax import nnx

from benchmarks.smollm2 import CONFIG
from clawgym_jax import cli
from clawgym_jax.models import CausalLM
from clawgym_jax.models.cache import init_cache
from clawgym_jax.models.create import serving_copy
from clawgym_jax.parallel.host import keep_memory

_ROWS = flags.DEFINE_integer("rows", 16, "Sequences.", lower_bound=1)
_LENGTH = flags.DEFINE_integer("length", 640, "Slots of a row.", lower_bound=4)
_STEPS = flags.DEFINE_integer("steps", 16, "Steps of a call.", lower_bound=1)
_DTYPE = flags.DEFINE_enum(
    "compute_dtype", "bfloat16", ["float32", "bfloat16"], "Weights and operands."
)
_CACHE = flags.DEFINE_enum(
    "cache_dtype", "bfloat16", ["float32", "bfloat16"], "Keys and values."
)


def bandwidth() -> float:
  """Bytes a second that a sum over 512 MiB reads."""
  data = jnp.ones((1 << 27,), jnp.float32)
  total = jax.jit(jnp.sum)
  jax.block_until_ready(total(data))
  return data.nbytes / _fastest(lambda: total(data))


def _fastest(run, times: int = 5) -> float:
  best = float("inf")
  for _ in range(times):
    start = time.perf_counter()
    jax.block_until_ready(run())
    best = min(best, time.perf_counter() - start)
  return best


def main() -> dict[str, Any]:
  keep_memory()
  rows, length = _ROWS.value, _LENGTH.value
  model = CausalLM(CONFIG, rngs=nnx.Rngs(0), compute_dtype=_DTYPE.value)
  model = serving_copy(model, _DTYPE.value)
  graphdef, params = nnx.split(model)
  cache = init_cache(CONFIG, rows, length, _CACHE.value)

  @partial(jax.jit, donate_argnums=1)
  def decode(params, cache, token, position):
    model = nnx.merge(graphdef, params)

    def step(_, carry):
      cache, token, position = carry
      hidden, cache = model(token, position, cache=cache)
      token = jnp.argmax(model.logits(hidden), axis=-1)
      return cache, token, position + 1

    carry = (cache, token, position)
    return jax.lax.fori_loop(0, _STEPS.value, step, carry)

  token = jnp.zeros((rows, 1), jnp.int32)
  position = jnp.full((rows, 1), length // 2, jnp.int32)
  start = time.perf_counter()
  compiled = decode.lower(params, cache, token, position).compile()
  compile_seconds = time.perf_counter() - start
  carry = compiled(params, cache, token, position)
  best = float("inf")
  for _ in range(5):
    start = time.perf_counter()
    carry = compiled(params, carry[0], token, position)
    jax.block_until_ready(carry)
    best = min(best, time.perf_counter() - start)
  seconds = best / _STEPS.value
  weights = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
  used = sum(leaf.nbytes for leaf in jax.tree.leaves(cache)) // 2
  speed = bandwidth()
  bound = (weights + used) / speed
  result = {
      "compile_seconds": round(compile_seconds, 1),
      "step_ms": round(1e3 * seconds, 1),
      "tokens_per_second": round(rows / seconds, 1),
      "read_mb": round((weights + used) / 1e6),
      "bandwidth_gb_s": round(speed / 1e9, 1),
      "bound_ms": round(1e3 * bound, 1),
      "times_the_bound": round(seconds / bound, 2),
      "temporary_mib": round(compiled.memory_analysis().temp_size_in_bytes / 2**20),
  }
  for name, value in result.items():
    print(f"{name}: {value}")
  return result


if __name__ == "__main__":
  cli.run(main)
