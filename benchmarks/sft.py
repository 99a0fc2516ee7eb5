"""Supervised fine-tuning of a SmolLM2-135M-shaped model, beside TRL and google-tunix.

Each trains the same random tokens, all of them, with its own AdamW and clipping, full
fine-tuning, on all cores of this machine, alone and one after the other; each peer in
its own environment (`benchmarks.peers`), in float32. Ours runs in float32 and in
bfloat16 with float32 weights. Seconds are those of the median step after the first
two; memory is the process's peak. The limit is the rate of a large float32 product
just before and after our steps, and `share_of_matmul` is the model's operations
(`models.flops`) a second over it. Weights are random: the time does not depend on
them.

  python -m benchmarks.sft [--peers=trl,tunix] [--json]
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from absl import flags

from benchmarks import peers
from clawgym_jax import cli
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models.known import KNOWN

CONFIG = KNOWN["SmolLM2-135M"]
_ROWS = flags.DEFINE_integer("rows", 4, "Sequences in a step.", lower_bound=1)
_TIME = flags.DEFINE_integer("time", 1024, "Tokens of a sequence.", lower_bound=16)
_STEPS = flags.DEFINE_integer("steps", 5, "Measured steps of each.", lower_bound=1)
_LAYERS = flags.DEFINE_integer(
    "layers", CONFIG.num_hidden_layers, "Of the model.", lower_bound=1
)
_PEERS = flags.DEFINE_list("peers", ["trl", "tunix"], "To run beside.")
_OURS = flags.DEFINE_list("ours", ["float32", "bfloat16"], "Operands of products.")
_REMAT = flags.DEFINE_list(
    "remat", ["dots", "none"], "What the backward pass keeps, of each of --ours."
)
_ALONE = flags.DEFINE_string("alone", "", "Of ours: measure it in this process.")

_WARM = 2  # the first compiles, the second touches what is new
_TIMEOUT = 3600.0


def main() -> dict[str, Any]:
  if _ALONE.value:
    return ours(_ALONE.value)
  unknown = set(_PEERS.value) - peers.PYTHONS.keys()
  if unknown:
    known = ", ".join(peers.PYTHONS)
    raise UserError(f"--peers={','.join(unknown)}: known are {known}")
  for name in _PEERS.value:
    peers.python_of(name)
  if len(_REMAT.value) != len(_OURS.value):
    raise UserError("--remat needs a name for each of --ours")
  result = {f"ours {d}": _child(d, r) for d, r in zip(_OURS.value, _REMAT.value)}
  for name in _PEERS.value:
    found = peers.measured(name, _settings(name), _TIMEOUT)
    result[name] = _figures(found["seconds"], found["peak_bytes"])
  first = result[f"ours {_OURS.value[0]}"]
  for name, found in result.items():
    print(name, found)
  ratios = {
      f"{_OURS.value[0]} / {name}": round(
          first["tokens_per_second"] / result[name]["tokens_per_second"], 2
      )
      for name in result
      if name != f"ours {_OURS.value[0]}"
  }
  print(ratios)
  return result | {"times": ratios}


def ours(dtype: str) -> dict[str, Any]:
  """The trainer's own parts, as its loop calls them."""
  import jax
  import jax.numpy as jnp
  from flax import nnx

  from clawgym_jax.configs.base import Optimizer
  from clawgym_jax.data.batch import collate
  from clawgym_jax.data.sequence import supervised
  from clawgym_jax.data.tree import Tree
  from clawgym_jax.models import CausalLM, flops
  from clawgym_jax.parallel.host import keep_memory, release_memory
  from clawgym_jax.parallel.peak import matmul_rate
  from clawgym_jax.sft.scores import supervised_loss
  from clawgym_jax.sft.setup import place
  from clawgym_jax.sft.updates import Updates

  keep_memory()
  rates = [matmul_rate(jnp.float32)]
  remat = _REMAT.value[0]
  model = CausalLM(_shape(), rngs=nnx.Rngs(0), compute_dtype=dtype, remat=remat)
  graphdef, params = nnx.split(model, nnx.Param)
  config = Optimizer(peak_lr=1e-5)
  updates = Updates(graphdef, params, supervised_loss, config)
  state = updates.initial(params)
  trained = [False] + [True] * (_TIME.value - 1)
  steps = _tokens()
  seconds = []
  for start in range(0, len(steps), _ROWS.value):
    begun = time.perf_counter()
    rows = [
        Tree([supervised(ids, trained)], share=False).row(_TIME.value)
        for ids in steps[start : start + _ROWS.value]
    ]
    batch = collate(rows, _TIME.value)
    weight = float(batch["weight"].sum())
    grads, sums = updates.summed(params, [place(batch, None)], weight)
    params, state, norm = updates.apply(params, state, grads, config.peak_lr)
    del grads
    float(norm), float(sums["loss"])
    seconds.append(time.perf_counter() - begun)
    if not start:
      release_memory()  # of compiling, as the trainer does
  del model
  found = _figures(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
  rates.append(matmul_rate(jnp.float32))
  length = _TIME.value
  each = _ROWS.value * flops.training(
      _shape(), length, length - 1, flops.causal_pairs(length)
  )
  rate = max(rates)
  return found | {
      "gflops_per_second": round(each / found["step_seconds"] / 1e9, 1),
      "matmul_gflops_per_second": round(rate / 1e9, 1),
      "share_of_matmul": round(each / found["step_seconds"] / rate, 3),
      "now_gib": round(_now() / 2**30, 2),
      "devices": jax.device_count(),
  }


def _child(dtype: str, remat: str) -> dict[str, Any]:
  """`ours` in a process of its own, so that its memory is its own."""
  command = [
      sys.executable, "-m", "benchmarks.sft", "--json", f"--alone={dtype}",
      f"--rows={_ROWS.value}", f"--time={_TIME.value}", f"--steps={_STEPS.value}",
      f"--layers={_LAYERS.value}", f"--remat={remat}",
  ]  # fmt: skip
  done = subprocess.run(
      command, capture_output=True, text=True, timeout=_TIMEOUT,
      env=os.environ | {"JAX_PLATFORMS": "cpu"},
  )  # fmt: skip
  if done.returncode:
    raise UserError(f"ours failed: {done.stderr[-3000:]}")
  return json.loads(done.stdout.splitlines()[-1])


def _figures(seconds: list[float], peak: int) -> dict[str, float]:
  step = statistics.median(seconds[_WARM:])
  return {
      "tokens_per_second": round(_ROWS.value * _TIME.value / step, 1),
      "step_seconds": round(step, 3),
      "fastest_seconds": round(min(seconds[_WARM:]), 3),
      "first_seconds": round(seconds[0], 1),
      "peak_gib": round(peak / 2**30, 2),
  }


def _settings(name: str) -> dict[str, Any]:
  shape, ids = _shape(), _tokens()
  found = {"ids": ids, "rows": _ROWS.value, "rate": 1e-5}
  if name == "trl":
    return found | {"config": shape.to_hf(), "labels": ids}
  return found | {
      "shape": {
          "num_layers": shape.num_hidden_layers,
          "vocab_size": shape.vocab_size,
          "embed_dim": shape.hidden_size,
          "hidden_dim": shape.intermediate_size,
          "num_heads": shape.num_attention_heads,
          "head_dim": shape.head_dim,
          "num_kv_heads": shape.num_key_value_heads,
          "rope_theta": int(shape.rope_theta),
          "norm_eps": shape.rms_norm_eps,
          "weight_tying": shape.tie_word_embeddings,
      }
  }


def _shape():
  from dataclasses import replace

  return replace(CONFIG, num_hidden_layers=_LAYERS.value)


def _tokens() -> list[list[int]]:
  """Of all steps, row by row."""
  import numpy as np

  count = (_WARM + _STEPS.value) * _ROWS.value
  draw = np.random.default_rng(0)
  return draw.integers(0, CONFIG.vocab_size, (count, _TIME.value)).tolist()


def _now() -> int:
  with open("/proc/self/statm") as file:
    return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
  cli.run(main)
