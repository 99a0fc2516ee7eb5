"""Low-rank adapters (arXiv:2106.09685) inside the linear layers.

y = x W^T + alpha / rank * (x A^T) B^T, with B zero at first, so that a model
with fresh adapters is its base. A and B are `nnx.LoRAParam`, which is an
`nnx.Param` too: ask for `nnx.LoRAParam` first to take them apart. They lie on
the mesh as their base does, A as its inputs and B as its outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from clawgym_jax import parallel
from clawgym_jax.contracts.errors import UserError

TARGETS = (
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
)
"""Every linear layer of a decoder; experts' weights are none."""


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
  """Which linear layers are adapted, and how.

  Attributes:
    rank: of the change, >= 1.
    alpha: the change is multiplied by alpha / rank.
    targets: names of `TARGETS`.
  """

  rank: int
  alpha: float
  targets: tuple[str, ...]

  def __post_init__(self) -> None:
    if self.rank < 1:
      raise UserError(f"LoRA of rank {self.rank}: it must be at least 1")
    if not math.isfinite(self.alpha) or self.alpha <= 0:
      raise UserError(f"LoRA with alpha {self.alpha}: it must be above 0")
    unknown = sorted(set(self.targets) - set(TARGETS))
    if unknown or not self.targets:
      raise UserError(
          f"LoRA targets {', '.join(unknown) or 'nothing'}: name some of"
          f" {', '.join(TARGETS)}"
      )

  @property
  def scale(self) -> float:
    return self.alpha / self.rank


class Factor(nnx.Module):
  """One of the two matrices of an adapter, under `weight`."""

  def __init__(self, value: jax.Array, axes: tuple[str | None, str | None]):
    placed = parallel.param(value, *axes)
    self.weight = nnx.LoRAParam(placed[...], **placed.get_metadata())

  @classmethod
  def uniform(
      cls,
      key: jax.Array,
      shape: tuple[int, ...],
      axes: tuple[str | None, str | None],
      dtype: jnp.dtype,
  ) -> Factor:
    """Within 1 / sqrt(in), as PEFT starts A."""
    bound = shape[-1] ** -0.5
    return cls(jax.random.uniform(key, shape, dtype, -bound, bound), axes)

  @classmethod
  def zeros(
      cls,
      shape: tuple[int, ...],
      axes: tuple[str | None, str | None],
      dtype: jnp.dtype,
  ) -> Factor:
    return cls(jnp.zeros(shape, dtype), axes)


def merge(params: dict[str, Any], scale: float) -> dict[str, Any]:
  """A tree of arrays with every adapter added to its weight and taken out.

  Products and sums are float32, the result has the weight's dtype.
  """
  if "lora_A" not in params:
    return {
        name: merge(value, scale) if isinstance(value, dict) else value
        for name, value in params.items()
    }
  rest = {name: v for name, v in params.items() if name not in ("lora_A", "lora_B")}
  a, b = (
      params[name]["weight"].astype(jnp.float32) for name in ("lora_A", "lora_B")
  )
  weight = params["weight"]
  change = scale * jnp.matmul(b, a, precision="highest")
  return rest | {"weight": (weight.astype(jnp.float32) + change).astype(weight.dtype)}
