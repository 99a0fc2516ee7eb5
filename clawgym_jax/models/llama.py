"""The Llama decoder layer (Llama 2/3, SmolLM2); module paths are Hugging Face's.

Agrees with transformers' modeling_llama.py. The residual stream is float32;
matrix products take operands in `compute_dtype` and add up in float32.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from clawgym_jax import parallel
from clawgym_jax.models.cache import loaded, stored
from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.layers.attention import (
    Window,
    cached_attention,
    tree_attention,
)
from clawgym_jax.models.layers.linear import Linear
from clawgym_jax.models.layers.norm import RMSNorm
from clawgym_jax.models.layers.rope import Tables, apply_rope

LayerCache = tuple[jax.Array, jax.Array]
"""Keys [rows, kv_heads, head_dim, slots], values [rows, kv_heads, slots, head_dim]."""


class Attention(nnx.Module):
  """Grouped-query attention with RoPE."""

  bias = False  # of queries, keys and values

  def __init__(self, config: ModelConfig, *, layers: int | None = None, **kw):
    heads = config.num_attention_heads * config.head_dim
    kv_heads = config.num_key_value_heads * config.head_dim
    size = config.hidden_size
    split = {"axes": ("tensor", "fsdp"), "layers": layers, **kw}
    self.head_dim = config.head_dim
    self.scale = (config.query_pre_attn_scalar or config.head_dim) ** -0.5
    self.compute_dtype = kw["compute_dtype"]
    self.q_proj = Linear(size, heads, name="q_proj", bias=self.bias, **split)
    self.k_proj = Linear(size, kv_heads, name="k_proj", bias=self.bias, **split)
    self.v_proj = Linear(size, kv_heads, name="v_proj", bias=self.bias, **split)
    split["axes"] = ("fsdp", "tensor")
    self.o_proj = Linear(heads, size, name="o_proj", **split)

  def __call__(
      self,
      x: jax.Array,
      tables: Tables,
      *,
      positions: jax.Array,
      window: jax.Array | None,
      end: jax.Array | None = None,
      flat: bool = False,
      rows: jax.Array | None = None,
      cache: LayerCache | None = None,
  ) -> tuple[jax.Array, LayerCache | None]:
    """x [batch, time, hidden] -> float32 [batch, time, hidden], cache.

    `window`: int32 scalar, how many positions back a query sees itself
    included; None where it sees all.
    """
    batch, time, _ = x.shape
    split = (batch, time, -1, self.head_dim)
    products = self.q_proj(x), self.k_proj(x), self.v_proj(x)
    if parallel.platform() == "tpu":
      # libtpu 0.0.52 fails where it splits heads inside a product's own fusion.
      products = jax.lax.optimization_barrier(products)
    query, key, value = (product.reshape(split) for product in products)
    # A norm gives float32: as narrow again as the product was stored.
    query = apply_rope(self.normalize_query(query).astype(query.dtype), tables)
    key = apply_rope(self.normalize_key(key).astype(key.dtype), tables)
    how = {"dtype": self.compute_dtype, "scale": self.scale}
    if cache is None:
      within = None if window is None else Window(positions, window)
      out = tree_attention(query, key, value, end, window=within, flat=flat, **how)
    else:
      at = jnp.arange(batch)[:, None] if rows is None else rows[:, None]
      dtype = loaded(cache[0][:0]).dtype
      keys = cache[0].at[at, :, :, positions].set(stored(key.astype(dtype)))
      values = cache[1].at[at, :, positions].set(stored(value.astype(dtype)))
      cache = (keys, values)
      if rows is not None:
        keys, values = keys[rows], values[rows]
      out = cached_attention(query, keys, values, positions, window=window, **how)
    return self.o_proj(out.reshape(batch, time, -1)), cache

  def normalize_query(self, query: jax.Array) -> jax.Array:
    return query

  def normalize_key(self, key: jax.Array) -> jax.Array:
    return key


class MLP(nnx.Module):
  """down(activation(gate(x)) * up(x))."""

  activation = staticmethod(jax.nn.silu)

  def __init__(self, config: ModelConfig, **kw):
    size, inner = config.hidden_size, config.intermediate_size
    split = {"axes": ("tensor", "fsdp"), **kw}
    self.gate_proj = Linear(size, inner, name="gate_proj", **split)
    self.up_proj = Linear(size, inner, name="up_proj", **split)
    split["axes"] = ("fsdp", "tensor")
    self.down_proj = Linear(inner, size, name="down_proj", **split)

  def __call__(self, x: jax.Array) -> jax.Array:
    return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nnx.Module):
  """Pre-norm attention and MLP, each added to the residual stream."""

  attention = Attention
  feed_forward = MLP

  def __init__(self, config: ModelConfig, *, layers: int | None = None, **kw):
    norm = {
        "eps": config.rms_norm_eps,
        "layers": layers,
        "param_dtype": kw["param_dtype"],
    }
    self.input_layernorm = RMSNorm(config.hidden_size, **norm)
    self.self_attn = self.attention(config, layers=layers, **kw)
    self.post_attention_layernorm = RMSNorm(config.hidden_size, **norm)
    self.mlp = self.feed_forward(config, layers=layers, **kw)

  def __call__(
      self, x: jax.Array, tables: Tables, **kw
  ) -> tuple[jax.Array, LayerCache | None]:
    """x float32 [batch, time, hidden] -> the same, and the layer's cache."""
    out, cache = self.self_attn(self.input_layernorm(x), tables, **kw)
    x = x + out
    return x + self.mlp(self.post_attention_layernorm(x)), cache
