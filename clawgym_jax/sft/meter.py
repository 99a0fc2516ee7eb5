"""What a step did and how well it used the devices.

MFU is the operations that the model's shapes ask for (`models.flops`) over what the
devices could have done in the step's seconds (`parallel.peak`); those seconds have
neither evaluation nor saving in them.
"""

from __future__ import annotations

import resource
from typing import Any

import jax

from clawgym_jax.models import flops
from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.parallel.peak import peak_flops
from clawgym_jax.sft.feed import Fed


class Meter:
  """Measures the steps of one model; `peak` is None where the chip is not known."""

  def __init__(self, model: CausalLM):
    self._config = model.config
    self._lora = model.lora
    self.peak = peak_flops(jax.devices(), model.compute_dtype)

  def counts(self, fed: Fed) -> dict[str, float]:
    """Of this process's rows; sums over processes are those of the batch."""
    real = fed.real()
    weight = fed.rows["weight"]
    scored = int((weight > 0).sum())
    return {
        "weight": float(weight.sum()),
        "share": float(fed.rows["share"].sum()),
        "tokens": int(real.sum()),
        "places": real.size,
        "trained_tokens": scored,
        "flops": flops.training(
            self._config,
            real.sum(),
            scored,
            flops.seen_pairs(self._config, fed.rows["positions"][real]),
            self._lora,
        ),
    }

  def line(
      self, counts: dict[str, float], seconds: float, waited: float
  ) -> dict[str, Any]:
    """A step's metrics but for what was learned; `seconds` are the whole step's."""
    mfu = None if self.peak is None else counts["flops"] / seconds / self.peak
    return {
        "tokens": int(counts["tokens"]),
        "trained_tokens": int(counts["trained_tokens"]),
        "trajectories": round(counts["share"]),
        "padding_share": 1 - counts["tokens"] / counts["places"],
        "seconds": seconds,
        "tokens_per_second": counts["tokens"] / seconds,
        "flops": counts["flops"],
        "mfu": mfu,
        "data_wait_share": waited / seconds,
        "memory_bytes": memory(),
    }


def memory() -> int:
  """The most that was in use so far: of the first device, or of this process."""
  stats = jax.local_devices()[0].memory_stats()
  if stats and "peak_bytes_in_use" in stats:
    return stats["peak_bytes_in_use"]
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
