"""The Gemma 3 decoder layer (text): norms on both sides of attention and MLP.

Agrees with transformers' modeling_gemma3.py: norm weights around zero, queries
and keys normalised a head, GELU (tanh) in the MLP. Which RoPE a layer uses and
how far back it sees are inputs (see `causal_lm.LayerKinds`), so that sliding
and full layers are scanned together.
"""

from __future__ import annotations

from functools import partial

import jax
from flax import nnx

from clawgym_jax.models import llama, qwen3
from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.layers.norm import RMSNorm
from clawgym_jax.models.layers.rope import Tables

NORM_OFFSET = 1


class Attention(qwen3.Attention):
  """Qwen3's attention with Gemma's norms."""

  norm_offset = NORM_OFFSET


class MLP(llama.MLP):
  """down(gelu(gate(x)) * up(x)), GELU by its tanh formula."""

  activation = staticmethod(partial(jax.nn.gelu, approximate=True))


class DecoderLayer(nnx.Module):
  """Attention and MLP, each between two norms and added to the residual stream."""

  def __init__(self, config: ModelConfig, *, layers: int | None = None, **kw):
    norm = {
        "eps": config.rms_norm_eps,
        "offset": NORM_OFFSET,
        "layers": layers,
        "param_dtype": kw["param_dtype"],
    }
    self.input_layernorm = RMSNorm(config.hidden_size, **norm)
    self.self_attn = Attention(config, layers=layers, **kw)
    self.post_attention_layernorm = RMSNorm(config.hidden_size, **norm)
    self.pre_feedforward_layernorm = RMSNorm(config.hidden_size, **norm)
    self.mlp = MLP(config, layers=layers, **kw)
    self.post_feedforward_layernorm = RMSNorm(config.hidden_size, **norm)

  def __call__(
      self, x: jax.Array, tables: Tables, **kw
  ) -> tuple[jax.Array, llama.LayerCache | None]:
    """x float32 [batch, time, hidden] -> the same, and the layer's cache."""
    out, cache = self.self_attn(self.input_layernorm(x), tables, **kw)
    x = x + self.post_attention_layernorm(out)
    out = self.mlp(self.pre_feedforward_layernorm(x))
    return x + self.post_feedforward_layernorm(out), cache
