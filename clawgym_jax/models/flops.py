"""Floating-point operations of a model, from its shapes alone.

Never from a compiler's count, which sees a scan once and no kernel. A product of
[a, b] and [b, c] is 2abc. Attention counts the pairs of queries and keys that the
mask lets through, so causal attention is counted once, not as a full square.
Training is three forward passes: what rematerialisation computes again is no
progress and is left out, norms and softmax too.
"""

from __future__ import annotations

from clawgym_jax.models.config import ModelConfig


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


def attention_forward(config: ModelConfig, pairs: float) -> float:
  """Of one layer's attention to `pairs` pairs of a query and a key that it sees."""
  return 4.0 * config.num_attention_heads * config.head_dim * pairs


def causal_pairs(time: int) -> int:
  """Pairs of one flat row without packing."""
  return time * (time + 1) // 2


def training(
    config: ModelConfig, tokens: float, scored: float, pairs: float
) -> float:
  """Of a forward and backward pass over `tokens`, `scored` of them by the head."""
  layers = config.num_hidden_layers
  forward = layers * (
      2.0 * layer_weights(config) * tokens + attention_forward(config, pairs)
  )
  return 3.0 * (forward + 2.0 * head_weights(config) * scored)
