"""The shape of a model out of a GGUF file's metadata.

What llama.cpp keeps in its code and not in the file (Gemma's pattern of
windows, its local RoPE, Qwen3-MoE's normalised routing) is taken from there;
what neither says is refused. Source: llama.cpp's convert_hf_to_gguf.py and
llama-model.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import ModelConfig

_FAMILIES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma3": "gemma3_text",
}
_GEMMA_27B_LAYERS = 62  # the one whose query scale is not its head's dimension
_LLAMA3_BOUNDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3_LENGTH = 8192
ROPE_FACTORS = "rope_freqs.weight"
_WITHOUT_EFFECT = {"vocab_size", "tensor_data_layout", "rope.scaling.finetuned"}


def read(path: Path, fields: dict[str, Any], stored: dict[str, Any]) -> ModelConfig:
  """The config of the model whose metadata and tensors a file has.

  Args:
    path: the file, for errors.
    fields: its keys and values.
    stored: its tensors, as `gguf.GGUFReader` gives them, by name.
  """
  family = fields.get("general.architecture")
  if family not in _FAMILIES:
    raise UserError(
        f"{path} is a {family!r} model; {', '.join(_FAMILIES)} are read here"
    )
  if fields.get("split.count", 1) > 1:
    raise UserError(f"{path} is one part of several: join them with llama-gguf-split")
  if "token_embd.weight" not in stored:
    raise UserError(f"{path} has no tensor token_embd.weight")

  own = f"{family}."
  left = {key.removeprefix(own) for key in fields if key.startswith(own)}
  left -= _WITHOUT_EFFECT

  def find(key: str, default: Any = None) -> Any:
    left.discard(key)
    return fields.get(f"{family}.{key}", default)

  def get(key: str, default: Any = None) -> Any:
    value = find(key, default)
    if value is None:
      raise UserError(f"{path} lacks {family}.{key}")
    return value

  heads = get("attention.head_count")
  hidden = get("embedding_length")
  head_dim = get("attention.key_length", hidden // heads)
  values = {
      "model_type": _FAMILIES[family],
      "vocab_size": int(stored["token_embd.weight"].shape[1]),
      "hidden_size": hidden,
      "intermediate_size": get("feed_forward_length"),
      "num_hidden_layers": get("block_count"),
      "num_attention_heads": heads,
      "num_key_value_heads": get("attention.head_count_kv", heads),
      "head_dim": head_dim,
      "rope_theta": _decimal(get("rope.freq_base", 10000.0)),
      "rms_norm_eps": _decimal(get("attention.layer_norm_rms_epsilon")),
      "max_position_embeddings": get("context_length"),
      "tie_word_embeddings": "output.weight" not in stored,
      "bos_token_id": fields.get("tokenizer.ggml.bos_token_id"),
      "eos_token_id": fields.get("tokenizer.ggml.eos_token_id"),
      "pad_token_id": fields.get("tokenizer.ggml.padding_token_id"),
  }
  if family == "qwen3moe":
    values |= {
        "num_experts": get("expert_count"),
        "num_experts_per_tok": get("expert_used_count"),
        "moe_intermediate_size": get("expert_feed_forward_length"),
        "norm_topk_prob": True,
    }
  if family == "gemma3":
    large = get("block_count") == _GEMMA_27B_LAYERS
    values |= {
        "sliding_window": get("attention.sliding_window"),
        "sliding_window_pattern": 6,
        "rope_local_base_freq": _decimal(get("rope.freq_base_swa", 10000.0)),
        "query_pre_attn_scalar": hidden // heads if large else head_dim,
        "final_logit_softcapping": find("final_logit_softcapping"),
    }
  scaling = _scaling(path, find, get)
  if ROPE_FACTORS in stored:
    factors = np.asarray(stored[ROPE_FACTORS].data, np.float32)
    scaling = _llama3(path, factors, values["rope_theta"])
  if scaling is not None:
    values["rope_scaling"] = scaling
  for key in ("rope.dimension_count", "attention.value_length"):
    if find(key, head_dim) != head_dim:
      raise UserError(
          f"{path} has {family}.{key} {find(key)} where a head has {head_dim}"
          " dimensions, which is not supported yet"
      )
  if left:
    raise UserError(f"{path} has a key {family}.{min(left)}, which is not read here")
  return ModelConfig.from_hf(values)


def _scaling(
    path: Path, find: Callable[..., Any], get: Callable[..., Any]
) -> dict[str, Any] | None:
  # llama.cpp takes a factor without a type for a linear one.
  factor = find("rope.scaling.factor")
  kind = find("rope.scaling.type", "none" if factor is None else "linear")
  if kind == "none":
    return None
  if kind not in ("linear", "yarn"):
    raise UserError(f"{path} uses RoPE scaling {kind!r}, which is not supported yet")
  found = {"rope_type": kind, "factor": _decimal(get("rope.scaling.factor"))}
  if kind == "yarn":
    names = {
        "original_context_length": "original_max_position_embeddings",
        "attn_factor": "attention_factor",
        "yarn_beta_fast": "beta_fast",
        "yarn_beta_slow": "beta_slow",
    }
    for name, ours in names.items():
      value = find(f"rope.scaling.{name}")
      if value is not None:
        found[ours] = value if isinstance(value, int) else _decimal(value)
  return found


def _llama3(path: Path, factors: np.ndarray, theta: float) -> dict[str, Any]:
  """Llama 3's scaling, which the file has as one divisor a frequency.

  The divisors say the factor; the other three numbers are Llama 3's own, and
  the divisors that they give must be the file's.
  """
  factor = float(factors.max())
  low, high = _LLAMA3_BOUNDS.values()
  frequencies = theta ** (-np.arange(len(factors)) / len(factors))
  turns = _LLAMA3_LENGTH * frequencies / (2 * np.pi)
  keep = np.clip((turns - low) / (high - low), 0, 1)
  if not np.allclose(1 / (keep + (1 - keep) / factor), factors, rtol=1e-3):
    raise UserError(f"{path} scales its RoPE in a way of its own, which is not read")
  return {
      "rope_type": "llama3",
      "factor": factor,
      "original_max_position_embeddings": _LLAMA3_LENGTH,
      **_LLAMA3_BOUNDS,
  }


def _decimal(value: float) -> float:
  """Stored as float32; back to the decimal it came from."""
  return float(f"{value:.6g}")
