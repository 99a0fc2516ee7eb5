"""Models from a config alone: tiny ones for tests, and serving copies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.models.config import ModelConfig


def tiny_qwen3(vocab_size: int, *, seed: int = 0, **kw) -> CausalLM:
  """A random Qwen3 of 2 layers and 64 dimensions; head_dim != hidden / heads."""
  config = ModelConfig(
      family="qwen3",
      vocab_size=vocab_size,
      hidden_size=64,
      intermediate_size=128,
      num_hidden_layers=2,
      num_attention_heads=4,
      num_key_value_heads=2,
      head_dim=32,
      rope_theta=1e6,
      rms_norm_eps=1e-6,
  )
  return CausalLM(config, rngs=nnx.Rngs(seed), **kw)


def tiny_llama(vocab_size: int, *, seed: int = 0, **kw) -> CausalLM:
  """A random Llama of 3 layers and 48 dimensions with 3 query and 1 key head."""
  config = ModelConfig(
      family="llama",
      vocab_size=vocab_size,
      hidden_size=48,
      intermediate_size=96,
      num_hidden_layers=3,
      num_attention_heads=3,
      num_key_value_heads=1,
      head_dim=16,
      tie_word_embeddings=False,
  )
  return CausalLM(config, rngs=nnx.Rngs(seed), **kw)


def serving_graphdef(config: ModelConfig, compute_dtype: jnp.dtype) -> nnx.GraphDef:
  """The structure that `serving_params` fits: one module a layer."""

  def build() -> CausalLM:
    return CausalLM(
        config,
        rngs=nnx.Rngs(0),
        compute_dtype=compute_dtype,
        scan_layers=False,
    )

  return nnx.split(nnx.eval_shape(build))[0]


def serving_params(params: nnx.State, dtype: jnp.dtype) -> nnx.State:
  """Parameters of a scanned model, cast to `dtype` and split layer by layer.

  Pure: jit it to convert fresh training weights between two decode steps.
  """
  values = nnx.to_pure_dict(params)
  stacked = values["model"]["layers"]
  count = jax.tree.leaves(stacked)[0].shape[0]
  values["model"]["layers"] = {
      index: jax.tree.map(lambda leaf, i=index: leaf[i], stacked)
      for index in range(count)
  }
  return jax.tree.map(lambda leaf: nnx.Param(leaf.astype(dtype)), nnx.State(values))


def serving_copy(model: CausalLM, dtype: jnp.dtype) -> CausalLM:
  """`model` for a decode loop: weights in `dtype`, one module a layer.

  With bfloat16 weights and compute a decode step of a 135M model reads 270 MB.
  New weights go in with `nnx.update(copy, serving_params(params, dtype))`.
  """
  graphdef = serving_graphdef(model.config, model.compute_dtype)
  params = nnx.state(model, nnx.Param)
  return nnx.merge(graphdef, serving_params(params, dtype))
