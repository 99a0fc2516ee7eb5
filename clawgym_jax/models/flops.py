"""Floating-point operations of a training step, counted from shapes alone.

What the mathematics asks for, whatever the program does: a product of [m, k] and
[k, n] is 2 m k n; a query is paired with the keys that it sees and no others
(causal attention counted once, as in MaxText since its pull request 1988); padding,
recomputation (remat), softmax, norms, activations and the optimizer count nothing.
The backward pass is twice the forward; where a weight is frozen under LoRA, once.
"""

from __future__ import annotations

import numpy as np

from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.layers.lora import LoraConfig


def training_flops(
    config: ModelConfig,
    positions: np.ndarray,
    scored: int,
    lora: LoraConfig | None = None,
) -> float:
  """Of one forward and backward pass.

  Args:
    config: the model's shape.
    positions: int [tokens], the depth of every token that is not padding on its
      path: it sees so many before it.
    scored: tokens that go through the language-model head.
    lora: the adapters, where they alone are trained.
  """
  weights = 6 if lora is None else 4
  layers = config.num_hidden_layers
  total = weights * float(len(positions)) * layers * sum(_matrices(config).values())
  total += weights * float(scored) * config.hidden_size * config.vocab_size
  if lora is not None:
    inner = lora.rank * sum(_sides(config, name) for name in lora.targets)
    total += 6 * float(len(positions)) * layers * inner
  width = config.num_attention_heads * config.head_dim
  seen = positions.astype(np.float64) + 1
  slides = config.sliding_layers or (False,) * layers
  for slid in set(slides):
    keys = np.minimum(seen, config.sliding_window) if slid else seen
    total += slides.count(slid) * 12 * width * float(keys.sum())
  return total


def parameters(config: ModelConfig) -> int:
  """Of all matrices, biases and norms left out; a shared embedding counts once."""
  matrices = _matrices(config)
  if config.num_experts is not None:
    matrices["experts"] *= config.num_experts // config.num_experts_per_tok
  tables = 1 if config.tie_word_embeddings else 2
  return (
      config.num_hidden_layers * sum(matrices.values())
      + tables * config.vocab_size * config.hidden_size
  )


def _matrices(config: ModelConfig) -> dict[str, int]:
  """Elements of one layer's matrices that one token meets."""
  size = config.hidden_size
  heads = config.num_attention_heads * config.head_dim
  kv_heads = config.num_key_value_heads * config.head_dim
  attention = 2 * size * heads + 2 * size * kv_heads
  if config.num_experts is None:
    return {"attention": attention, "mlp": 3 * size * config.intermediate_size}
  experts = 3 * size * config.moe_intermediate_size * config.num_experts_per_tok
  return {
      "attention": attention,
      "router": size * config.num_experts,
      "experts": experts,
  }


def _sides(config: ModelConfig, name: str) -> int:
  """Inputs and outputs of the linear layer `name`."""
  size, inner = config.hidden_size, config.intermediate_size
  heads = config.num_attention_heads * config.head_dim
  kv_heads = config.num_key_value_heads * config.head_dim
  other = {
      "q_proj": heads,
      "k_proj": kv_heads,
      "v_proj": kv_heads,
      "o_proj": heads,
      "gate_proj": inner,
      "up_proj": inner,
      "down_proj": inner,
  }
  return size + other[name]
