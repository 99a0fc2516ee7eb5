"""Models from a config alone, tiny ones for tests; copies that serve or lack LoRA."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.layers.lora import LoraConfig, merge


_QWEN3 = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,  # not hidden / heads
    "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
}
_LLAMA = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "tie_word_embeddings": False,
}
_QWEN2 = _QWEN3 | {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_attention_heads": 6,
    "head_dim": 8,
    "tie_word_embeddings": False,
}
_QWEN3_MOE = _QWEN3 | {
    "tie_word_embeddings": False,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}
_GEMMA3 = _QWEN3 | {
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "sliding_window": 5,
    "layer_types": ("sliding_attention", "full_attention", "sliding_attention"),
    "rope_local_base_freq": 1e4,
    "query_pre_attn_scalar": 24,
}
TINY = {
    "llama": _LLAMA,
    "qwen2": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "gemma3_text": _GEMMA3,
}
"""Of each family a shape that a test can afford, but for its vocabulary."""


def tiny_config(family: str, vocab_size: int) -> ModelConfig:
  """The config of `tiny(family, vocab_size)`."""
  return ModelConfig(family=family, vocab_size=vocab_size, **TINY[family])


def tiny(family: str, vocab_size: int, *, seed: int = 0, **kw: Any) -> CausalLM:
  """A random model of 2 or 3 layers; `kw` as of `CausalLM`."""
  return CausalLM(tiny_config(family, vocab_size), rngs=nnx.Rngs(seed), **kw)


tiny_llama = partial(tiny, "llama")
tiny_qwen2 = partial(tiny, "qwen2")
tiny_qwen3 = partial(tiny, "qwen3")
tiny_qwen3_moe = partial(tiny, "qwen3_moe")
tiny_gemma3 = partial(tiny, "gemma3_text")


def serving_graphdef(config: ModelConfig, compute_dtype: jnp.dtype) -> nnx.GraphDef:
  """The structure that `serving_params` fits: one module a layer, no LoRA."""
  return _abstract(config, compute_dtype=compute_dtype, scan_layers=False)[0]


def serving_params(
    params: nnx.State, dtype: jnp.dtype, lora: LoraConfig | None = None
) -> nnx.State:
  """Parameters of a scanned model, cast to `dtype` and split layer by layer.

  Routers of mixtures stay as they are.

  Adapters, if `lora` says there are some, are merged into their weights. Pure:
  jit it to convert fresh training weights between two decode steps. Raises
  ValueError where there are adapters and `lora` does not say so.
  """
  if lora is None and any("lora_A" in path for path, _ in nnx.to_flat_state(params)):
    raise ValueError("the parameters have adapters: give the model's `lora`")
  values = nnx.to_pure_dict(params)
  if lora is not None:
    values = merge(values, lora.scale)
  stacked = values["model"]["layers"]
  count = jax.tree.leaves(stacked)[0].shape[0]
  values["model"]["layers"] = {
      index: jax.tree.map(lambda leaf, i=index: leaf[i], stacked)
      for index in range(count)
  }

  def served(path: tuple[Any, ...], leaf: jax.Array) -> nnx.Param:
    # A router's product is float32 in training too: rounded, it would choose
    # other experts than the trainer scores.
    router = [key.key for key in path][-3:] == ["mlp", "gate", "weight"]
    return nnx.Param(leaf if router else leaf.astype(dtype))

  return nnx.State(jax.tree.map_with_path(served, values))


def serving_copy(model: CausalLM, dtype: jnp.dtype) -> CausalLM:
  """`model` for a decode loop: weights in `dtype`, LoRA merged, one module a layer.

  With bfloat16 weights and compute a decode step of a 135M model reads 270 MB.
  New weights go in with
  `nnx.update(copy, serving_params(params, dtype, model.lora))`.
  """
  graphdef = serving_graphdef(model.config, model.compute_dtype)
  params = nnx.state(model, nnx.Param)
  return nnx.merge(graphdef, serving_params(params, dtype, model.lora))


def merged(model: CausalLM) -> CausalLM:
  """`model` with its adapters added to their weights and gone; laid out as it was."""
  if model.lora is None:
    return model
  graphdef, state = _abstract(
      model.config,
      compute_dtype=model.compute_dtype,
      scan_layers=model.model.scan_layers,
      unroll=model.model.unroll,
      remat=model.model.remat,
  )
  before = nnx.to_pure_dict(nnx.state(model, nnx.Param))
  values = merge(before, model.lora.scale)
  nnx.replace_by_pure_dict(state, _placed_as(before, values))
  return nnx.merge(graphdef, state)


def _abstract(config: ModelConfig, **kw: Any) -> tuple[nnx.GraphDef, nnx.State]:
  """A model's structure and the shapes of its parameters, without values."""
  return nnx.split(nnx.eval_shape(lambda: CausalLM(config, rngs=nnx.Rngs(0), **kw)))


def _placed_as(before: dict[Any, Any], values: dict[Any, Any]) -> dict[Any, Any]:
  return {
      name: _placed_as(before[name], value)
      if isinstance(value, dict)
      else jax.device_put(value, before[name].sharding)
      for name, value in values.items()
  }
