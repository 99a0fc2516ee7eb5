"""Tokens a second of the rollout engine at SmolLM2-135M's shape, and its bound.

`slots` requests of one prompt length sample at once; the clock runs from the
first decode call to the last, so it covers sampling, the host loop and the
transfers, and not prefill, which is measured apart. The bound is the time to
read every weight once a step and the used part of the cache, at the bandwidth
that a large copy reaches just before or after, bytes read and written counted;
a share near or above 1 means that other work slowed the copy. Random weights: the time does not
depend on them.

  python -m benchmarks.decode [--slots=1,8,16] [--json]
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from flax import nnx

from clawgym_jax import cli
from clawgym_jax.models import CausalLM
from clawgym_jax.models.known import KNOWN
from clawgym_jax.parallel.host import keep_memory
from clawgym_jax.serve import Engine, Sampling, precision

CONFIG = KNOWN["SmolLM2-135M"]
_SLOTS = flags.DEFINE_list("slots", ["1", "8", "16"], "Requests at once.")
_PROMPT = flags.DEFINE_integer("prompt", 256, "Tokens of a prompt.", 2)
_TOKENS = flags.DEFINE_integer("tokens", 64, "Tokens sampled a request.", 2)
_MAX_LEN = flags.DEFINE_integer("max_len", 1024, "Places of a cache row.", 16)
_DTYPE = flags.DEFINE_enum(
    "compute_dtype", "auto", precision.CHOICES, "Weights, operands and cache."
)


def main() -> dict[str, Any]:
  keep_memory()
  model = CausalLM(CONFIG, rngs=nnx.Rngs(0))
  return {slots: _measure(model, int(slots)) for slots in _SLOTS.value}


def _measure(model: CausalLM, slots: int) -> dict[str, Any]:
  speed = _copy_bandwidth()
  dtype, reason = precision.choose(_DTYPE.value, CONFIG, slots)
  print(reason)
  start = time.perf_counter()
  with Engine(
      model, None, slots=slots, max_len=_MAX_LEN.value, compute_dtype=dtype
  ) as engine:
    warm_up = time.perf_counter() - start
    start = time.perf_counter()
    prompts = np.random.default_rng(0).integers(
        0, CONFIG.vocab_size, (slots, _PROMPT.value)
    )
    one = Sampling(max_tokens=1, seed=0)
    for future in [engine.generate(p.tolist(), one) for p in prompts]:
      future.result()
    prefill = time.perf_counter() - start
    start = time.perf_counter()
    sampling = Sampling(max_tokens=_TOKENS.value, seed=0)
    for future in [engine.generate(p.tolist(), sampling) for p in prompts]:
      future.result()
    seconds = (time.perf_counter() - start) / _TOKENS.value
    recompiles = engine.recompiles
  speed = max(speed, _copy_bandwidth())
  parameters = sum(
      leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))
  )
  heads = CONFIG.num_key_value_heads * CONFIG.head_dim
  per_token = 2 * CONFIG.num_hidden_layers * heads
  context = _PROMPT.value + _TOKENS.value / 2
  read = (parameters + slots * context * per_token) * dtype.itemsize
  bound = read / speed
  result = {
      "compute_dtype": dtype.name,
      "warm_up_s": round(warm_up, 1),
      "prefill_tokens_per_second": round(slots * _PROMPT.value / prefill),
      "step_ms": round(1e3 * seconds, 1),
      "tokens_per_second": round(slots / seconds, 1),
      "copy_gb_s": round(speed / 1e9, 1),
      "read_mb": round(read / 1e6),
      "bound_tokens_per_second": round(slots / bound, 1),
      "share_of_bound": round(bound / seconds, 2),
      "recompiles": recompiles,
  }
  print(f"{slots} slots: {result}")
  return result


def _copy_bandwidth() -> float:
  """Bytes a second read and written by a copy of 512 MiB."""
  data = jnp.ones((1 << 27,), jnp.float32)
  copy = jax.jit(lambda x: x + 1)
  jax.block_until_ready(copy(data))
  best = float("inf")
  for _ in range(5):
    start = time.perf_counter()
    jax.block_until_ready(copy(data))
    best = min(best, time.perf_counter() - start)
  return 2 * data.nbytes / best


if __name__ == "__main__":
  cli.run(main)
