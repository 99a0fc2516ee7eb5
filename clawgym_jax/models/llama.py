"""The Llama decoder layer (Llama 2/3, SmolLM2); module paths are Hugging Face's.

Agrees with transformers' modeling_llama.py. The residual stream is float32;
matrix products take operands in `compute_dtype` and add up in float32.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from clawgym_jax.models.cache import loaded, stored
from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.layers.attention import cached_attention, tree_attention
from clawgym_jax.models.layers.linear import Linear
from clawgym_jax.models.layers.norm import RMSNorm
from clawgym_jax.models.layers.rope import apply_rope

LayerCache = tuple[jax.Array, jax.Array]
"""Keys [rows, kv_heads, head_dim, slots], values [rows, kv_heads, slots, head_dim]."""


class Attention(nnx.Module):
  """Grouped-query attention with RoPE."""

  def __init__(self, config: ModelConfig, *, layers: int | None = None, **kw):
    heads = config.num_attention_heads * config.head_dim
    kv_heads = config.num_key_value_heads * config.head_dim
    size = config.hidden_size
    split = {"axes": ("tensor", "fsdp"), "layers": layers, **kw}
    self.head_dim = config.head_dim
    self.compute_dtype = kw["compute_dtype"]
    self.q_proj = Linear(size, heads, **split)
    self.k_proj = Linear(size, kv_heads, **split)
    self.v_proj = Linear(size, kv_heads, **split)
    self.o_proj = Linear(heads, size, **split | {"axes": ("fsdp", "tensor")})

  def __call__(
      self,
      x: jax.Array,
      tables: tuple[jax.Array, jax.Array],
      *,
      end: jax.Array | None,
      positions: jax.Array,
      rows: jax.Array | None,
      cache: LayerCache | None,
  ) -> tuple[jax.Array, LayerCache | None]:
    """x [batch, time, hidden] -> float32 [batch, time, hidden], cache."""
    batch, time, _ = x.shape
    split = (batch, time, -1, self.head_dim)
    query = self.normalize_query(self.q_proj(x).reshape(split))
    key = self.normalize_key(self.k_proj(x).reshape(split))
    query, key = apply_rope(query, tables), apply_rope(key, tables)
    value = self.v_proj(x).reshape(split)
    if cache is None:
      out = tree_attention(query, key, value, end, self.compute_dtype)
    else:
      at = jnp.arange(batch)[:, None] if rows is None else rows[:, None]
      dtype = loaded(cache[0][:0]).dtype
      keys = cache[0].at[at, :, :, positions].set(stored(key.astype(dtype)))
      values = cache[1].at[at, :, positions].set(stored(value.astype(dtype)))
      cache = (keys, values)
      if rows is not None:
        keys, values = keys[rows], values[rows]
      out = cached_attention(query, keys, values, positions, self.compute_dtype)
    return self.o_proj(out.reshape(batch, time, -1)), cache

  def normalize_query(self, query: jax.Array) -> jax.Array:
    return query

  def normalize_key(self, key: jax.Array) -> jax.Array:
    return key


class MLP(nnx.Module):
  """down(silu(gate(x)) * up(x))."""

  def __init__(self, config: ModelConfig, **kw):
    size, inner = config.hidden_size, config.intermediate_size
    self.gate_proj = Linear(size, inner, axes=("tensor", "fsdp"), **kw)
    self.up_proj = Linear(size, inner, axes=("tensor", "fsdp"), **kw)
    self.down_proj = Linear(inner, size, axes=("fsdp", "tensor"), **kw)

  def __call__(self, x: jax.Array) -> jax.Array:
    return self.down_proj(jax.nn.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nnx.Module):
  """Pre-norm attention and MLP, each added to the residual stream."""

  attention = Attention

  def __init__(self, config: ModelConfig, *, layers: int | None = None, **kw):
    norm = {
        "eps": config.rms_norm_eps,
        "layers": layers,
        "param_dtype": kw["param_dtype"],
    }
    self.input_layernorm = RMSNorm(config.hidden_size, **norm)
    self.self_attn = self.attention(config, layers=layers, **kw)
    self.post_attention_layernorm = RMSNorm(config.hidden_size, **norm)
    self.mlp = MLP(config, layers=layers, **kw)

  def __call__(
      self, x: jax.Array, tables: tuple[jax.Array, jax.Array], **kw
  ) -> tuple[jax.Array, LayerCache | None]:
    """x float32 [batch, time, hidden] -> the same, and the layer's cache."""
    out, cache = self.self_attn(self.input_layernorm(x), tables, **kw)
    x = x + out
    return x + self.mlp(self.post_attention_layernorm(x)), cache
