"""The Qwen3-MoE decoder layer: Qwen3's attention and a mixture of experts.

Agrees with transformers' modeling_qwen3_moe.py. Every layer is a mixture
(`decoder_sparse_step` 1). The router's product and softmax are float32
whatever the compute dtype; its auxiliary load-balancing loss is left out.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from clawgym_jax.models import qwen3
from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.layers.experts import Experts
from clawgym_jax.models.layers.linear import Linear
from clawgym_jax.models.layers.lora import LoraConfig


class SparseMLP(nnx.Module):
  """A router, `gate`, and the experts it chooses among."""

  def __init__(
      self,
      config: ModelConfig,
      *,
      layers: int | None = None,
      compute_dtype: jnp.dtype,
      lora: LoraConfig | None,
      **kw,
  ):
    del lora  # the attention's alone, see `CausalLM`
    self.count = config.num_experts_per_tok
    self.normalize = config.norm_topk_prob
    self.gate = Linear(
        config.hidden_size,
        config.num_experts,
        name="gate",
        axes=(None, "fsdp"),
        layers=layers,
        compute_dtype=jnp.dtype(jnp.float32),
        **kw,
    )
    self.experts = Experts(config, layers=layers, compute_dtype=compute_dtype, **kw)

  def __call__(self, x: jax.Array) -> jax.Array:
    """x [batch, time, hidden] -> float32 [batch, time, hidden]."""
    shares, chosen = jax.lax.top_k(jax.nn.softmax(self.gate(x)), self.count)
    if self.normalize:
      shares = shares / jnp.sum(shares, axis=-1, keepdims=True)
    return self.experts(x, chosen, shares)


class DecoderLayer(qwen3.DecoderLayer):
  """Qwen3's layer around a mixture of experts."""

  feed_forward = SparseMLP
