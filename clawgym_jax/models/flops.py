"""Floating-point operations of a model, from its shapes alone.

Never from a compiler's count, which sees a scan once and no kernel. A product of
[a, b] and [b, c] is 2abc. Attention counts the pairs of queries and keys that the
mask lets through, so causal attention is counted once, not as a full square (as
MaxText does since its pull request 1988). Training is three forward passes, two
where a weight is frozen under LoRA: what rematerialisation computes again is no
progress and is left out; so are padding, norms, softmax and the optimizer.
"""

from __future__ import annotations

import numpy as np

from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.layers.lora import LoraConfig


def layer_weights(config: ModelConfig) -> int:
  """Elements of a layer's matrices that one token is multiplied by."""
  size, dim = config.hidden_size, config.head_dim
  heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
  attention = 2 * size * dim * heads + 2 * size * dim * kv_heads
  if config.num_experts is None:
    return attention + 3 * size * config.intermediate_size
  experts = config.num_experts_per_tok * 3 * size * config.moe_intermediate_size
  return attention + size * config.num_experts + experts


def head_weights(config: ModelConfig) -> int:
  """Elements of the head, by which a scored position is multiplied."""
  return config.vocab_size * config.hidden_size


def adapter_weights(config: ModelConfig, lora: LoraConfig) -> int:
  """Elements of a layer's adapters."""
  size, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
  heads, kv_heads = config.num_attention_heads * dim, config.num_key_value_heads * dim
  other = {
      "q_proj": heads, "k_proj": kv_heads, "v_proj": kv_heads, "o_proj": heads,
      "gate_proj": inner, "up_proj": inner, "down_proj": inner,
  }  # fmt: skip
  return lora.rank * sum(size + other[name] for name in lora.targets)


def attention_forward(config: ModelConfig, pairs: float) -> float:
  """Of one layer's attention to `pairs` pairs of a query and a key that it sees."""
  return 4.0 * config.num_attention_heads * config.head_dim * pairs


def causal_pairs(time: int) -> int:
  """Pairs of one flat row without packing."""
  return time * (time + 1) // 2


def seen_pairs(config: ModelConfig, positions: np.ndarray) -> float:
  """Pairs of tokens at these depths on their paths, int [tokens]: the layers' mean."""
  seen = positions.astype(np.float64) + 1
  if config.sliding_layers is None:
    return float(seen.sum())
  near = np.minimum(seen, config.sliding_window)
  slid = float(np.mean(config.sliding_layers))
  return float(slid * near.sum() + (1 - slid) * seen.sum())


def training(
    config: ModelConfig,
    tokens: float,
    scored: float,
    pairs: float,
    lora: LoraConfig | None = None,
) -> float:
  """Of a forward and backward pass over `tokens`, `scored` of them by the head.

  `pairs` are those of one layer; with `lora` the adapters alone are trained.
  """
  layers = config.num_hidden_layers
  matrices = 2.0 * (
      layers * layer_weights(config) * tokens + head_weights(config) * scored
  )
  attention = layers * attention_forward(config, pairs)
  if lora is None:
    return 3.0 * (matrices + attention)
  adapters = 2.0 * layers * adapter_weights(config, lora) * tokens
  return 2.0 * matrices + 3.0 * (attention + adapters)
