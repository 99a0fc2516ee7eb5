"""Shapes of published models, for what needs no weights: compiling ahead of time."""

from __future__ import annotations

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models.config import ModelConfig

_QWEN3 = {
    "family": "qwen3",
    "vocab_size": 151936,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}

KNOWN = {
    "SmolLM2-135M": ModelConfig(
        family="llama",
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
        rope_theta=100000.0,
        max_position_embeddings=8192,
    ),
    "Qwen3-4B": ModelConfig(**_QWEN3 | {
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "tie_word_embeddings": True,
    }),
    "Qwen3-8B": ModelConfig(**_QWEN3 | {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
    }),
    "Qwen3-30B-A3B": ModelConfig(**_QWEN3 | {
        "family": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
    }),
}
"""By Hugging Face's names, the owner's left out."""


def known(name: str) -> ModelConfig:
  """The shape of a model whose name starts with one of `KNOWN`'s, in any case."""
  last = name.rstrip("/").rpartition("/")[2].lower()
  found = [key for key in KNOWN if last.startswith(key.lower())]
  if not found:
    raise UserError(
        f"{name!r} is no folder with a config.json and none of the shapes that are"
        f" known: {', '.join(sorted(KNOWN))}"
    )
  return KNOWN[max(found, key=len)]
