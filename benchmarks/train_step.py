"""Tokens a second of a training step of a SmolLM2-135M-shaped model.

One step is the forward and backward pass of [rows, time] tokens of which a
share is trained, full fine-tuning, without the optimizer. The peer is the same
mathematics in float32 with JAX's own gradients and its own attention. Random
weights: the time does not depend on them.

  python -m benchmarks.train_step [--peer] [--json]
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
from absl import flags
from flax import nnx

from benchmarks.smollm2 import CONFIG
from clawgym_jax import cli
from clawgym_jax.models import CausalLM
from clawgym_jax.models.layers.rope import apply_rope, rope_tables
from clawgym_jax.models.logprobs import token_logprobs
from clawgym_jax.parallel.host import keep_memory

_ROWS = flags.DEFINE_integer("rows", 4, "Sequences in a step.", lower_bound=1)
_TIME = flags.DEFINE_integer("time", 512, "Tokens of a sequence.", lower_bound=1)
_TRAINED = flags.DEFINE_float(
    "trained", 0.4, "Share of the tokens that are trained.", 0.001, 1.0
)
_STEPS = flags.DEFINE_integer("steps", 3, "Measured steps.", lower_bound=1)
_DTYPE = flags.DEFINE_enum(
    "compute_dtype", "bfloat16", ["float32", "bfloat16"], "Operands of products."
)
_SCAN = flags.DEFINE_bool("scan", True, "Scan over the layers.")
_REMAT = flags.DEFINE_string("remat", "none", "Rematerialisation policy.")
_PEER = flags.DEFINE_bool("peer", False, "Also time the plain float32 step.")

def ours(model: CausalLM, tokens: jax.Array, at: jax.Array) -> jax.Array:
  """Mean negative log-prob of the tokens after the positions `at` [n]."""
  batch, length = tokens.shape
  positions = jnp.broadcast_to(jnp.arange(length), tokens.shape)
  end = jnp.full(tokens.shape, length, jnp.int32)
  hidden, _ = model(tokens, positions, end=end)
  hidden = hidden.reshape(batch * length, -1)[at]
  targets = jnp.roll(tokens, -1, axis=1).reshape(-1)[at]
  return -jnp.mean(token_logprobs(model, hidden, targets))


def peer(params: dict[str, Any], tokens: jax.Array, at: jax.Array) -> jax.Array:
  """`ours` written plainly: float32, JAX's attention and its own gradients."""
  params = params["model"]
  batch, length = tokens.shape
  positions = jnp.broadcast_to(jnp.arange(length), tokens.shape)
  tables = rope_tables(positions, CONFIG.head_dim, CONFIG.rope_theta)

  def norm(x, weight):
    x = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + CONFIG.rms_norm_eps)
    return x * weight["weight"]

  def layer(x, params):
    attention, mlp = params["self_attn"], params["mlp"]
    h = norm(x, params["input_layernorm"])
    query, key, value = (
        (h @ attention[name]["weight"].T).reshape(batch, length, -1, CONFIG.head_dim)
        for name in ("q_proj", "k_proj", "v_proj")
    )
    query, key = apply_rope(query, tables), apply_rope(key, tables)
    out = jax.nn.dot_product_attention(query, key, value, is_causal=True)
    x = x + out.reshape(batch, length, -1) @ attention["o_proj"]["weight"].T
    h = norm(x, params["post_attention_layernorm"])
    gate = jax.nn.silu(h @ mlp["gate_proj"]["weight"].T)
    inner = gate * (h @ mlp["up_proj"]["weight"].T)
    return x + inner @ mlp["down_proj"]["weight"].T, None

  embeddings = params["embed_tokens"]["weight"]
  x, _ = jax.lax.scan(layer, embeddings[tokens], params["layers"])
  x = norm(x, params["norm"]).reshape(batch * length, -1)[at]
  targets = jnp.roll(tokens, -1, axis=1).reshape(-1)[at]
  logprobs = jax.nn.log_softmax(x @ embeddings.T)
  return -jnp.mean(jnp.take_along_axis(logprobs, targets[:, None], 1))


def measure(step, *arguments: Any) -> dict[str, float]:
  """Seconds to compile and of the fastest of the measured steps."""
  start = time.perf_counter()
  compiled = step.lower(*arguments).compile()
  compile_seconds = time.perf_counter() - start
  jax.block_until_ready(compiled(*arguments))
  best = busy = float("inf")
  for _ in range(_STEPS.value):
    start, cpu_start = time.perf_counter(), time.process_time()
    jax.block_until_ready(compiled(*arguments))
    best = min(best, time.perf_counter() - start)
    busy = min(busy, time.process_time() - cpu_start)
  tokens = _ROWS.value * _TIME.value
  temporary = compiled.memory_analysis().temp_size_in_bytes
  return {
      "compile_seconds": round(compile_seconds, 1),
      "step_seconds": round(best, 3),
      "cpu_seconds": round(busy, 3),  # of all cores; steady on a busy machine
      "tokens_per_second": round(tokens / best, 1),
      "temporary_gib": round(temporary / 2**30, 2),
  }


def main() -> dict[str, Any]:
  keep_memory()
  seed = jax.random.key(0)
  tokens = jax.random.randint(
      seed, (_ROWS.value, _TIME.value), 0, CONFIG.vocab_size
  )
  count = max(1, int(tokens.size * _TRAINED.value))
  at = jnp.sort(jax.random.permutation(seed, tokens.size)[:count])
  model = CausalLM(
      CONFIG,
      rngs=nnx.Rngs(0),
      compute_dtype=_DTYPE.value,
      scan_layers=_SCAN.value,
      remat=_REMAT.value,
  )
  graphdef, params = nnx.split(model)

  def loss(params, tokens, at):
    return ours(nnx.merge(graphdef, params), tokens, at)

  result: dict[str, Any] = {
      "forward": measure(jax.jit(loss), params, tokens, at),
      "step": measure(jax.jit(jax.value_and_grad(loss)), params, tokens, at),
  }
  if _PEER.value:
    plain = nnx.to_pure_dict(params)
    step = jax.jit(jax.value_and_grad(peer))
    result["peer"] = measure(step, plain, tokens, at)
    result["times_the_peer"] = round(
        result["step"]["tokens_per_second"] / result["peer"]["tokens_per_second"], 2
    )
  for name, value in result.items():
    print(name, value)
  return result


if __name__ == "__main__":
  cli.run(main)
