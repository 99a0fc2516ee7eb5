"""The Qwen3 dense decoder layer: Llama's, with normalised queries and keys.

Agrees with transformers' modeling_qwen3.py.
"""

from __future__ import annotations

import jax

from clawgym_jax.models import llama
from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.layers.norm import RMSNorm


class Attention(llama.Attention):
  """Attention that normalises each head's query and key before RoPE."""

  norm_offset = 0

  def __init__(self, config: ModelConfig, *, layers: int | None = None, **kw):
    super().__init__(config, layers=layers, **kw)
    norm = {
        "eps": config.rms_norm_eps,
        "offset": self.norm_offset,
        "layers": layers,
        "param_dtype": kw["param_dtype"],
    }
    self.q_norm = RMSNorm(config.head_dim, **norm)
    self.k_norm = RMSNorm(config.head_dim, **norm)

  def normalize_query(self, query: jax.Array) -> jax.Array:
    return self.q_norm(query)

  def normalize_key(self, key: jax.Array) -> jax.Array:
    return self.k_norm(key)


class DecoderLayer(llama.DecoderLayer):
  """Llama's layer around Qwen3's attention."""

  attention = Attention
