"""A model's shape, under Hugging Face's names.

`from_hf(to_hf())` gives the same config back, and `to_hf()` is a config.json
that transformers loads. What this code does not compute (sliding windows, an
unknown RoPE scaling, attention biases) is refused, never ignored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from clawgym_jax.contracts.errors import UserError

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
  """Shape of a decoder. `family` is Hugging Face's `model_type`."""

  family: str
  vocab_size: int
  hidden_size: int
  intermediate_size: int
  num_hidden_layers: int
  num_attention_heads: int
  num_key_value_heads: int
  head_dim: int
  rope_theta: float = 10000.0
  rms_norm_eps: float = 1e-5
  max_position_embeddings: int = 2048
  tie_word_embeddings: bool = True
  bos_token_id: int | None = None
  eos_token_id: int | None = None
  pad_token_id: int | None = None

  def __post_init__(self) -> None:
    if self.family not in _ARCHITECTURES:
      raise UserError(
          f"model type {self.family!r} is not supported: use one of"
          f" {', '.join(sorted(_ARCHITECTURES))}"
      )
    if self.num_attention_heads % self.num_key_value_heads:
      raise UserError(
          f"{self.num_attention_heads} attention heads can't share"
          f" {self.num_key_value_heads} key/value heads evenly"
      )
    if self.head_dim % 2:
      raise UserError(f"head_dim is {self.head_dim}; RoPE needs an even one")

  @classmethod
  def from_hf(cls, values: dict[str, Any]) -> ModelConfig:
    """From the contents of a config.json; raises `UserError` on what is not supported."""
    heads = values.get("num_attention_heads")
    try:
      rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
      kind = rope.get("rope_type", rope.get("type", "default"))
      _refuse(kind != "default", f"RoPE scaling {kind!r}")
      _refuse(values.get("attention_bias", False), "attention_bias")
      _refuse(values.get("mlp_bias", False), "mlp_bias")
      _refuse(values.get("use_sliding_window", False), "use_sliding_window")
      activation = values.get("hidden_act", "silu")
      _refuse(activation != "silu", f"hidden_act {activation!r}")
      return cls(
          family=values["model_type"],
          vocab_size=values["vocab_size"],
          hidden_size=values["hidden_size"],
          intermediate_size=values["intermediate_size"],
          num_hidden_layers=values["num_hidden_layers"],
          num_attention_heads=heads,
          num_key_value_heads=values.get("num_key_value_heads") or heads,
          head_dim=values.get("head_dim") or values["hidden_size"] // heads,
          rope_theta=float(
              values.get("rope_theta") or rope.get("rope_theta") or 10000.0
          ),
          rms_norm_eps=values.get("rms_norm_eps", 1e-6),
          max_position_embeddings=values.get("max_position_embeddings", 2048),
          tie_word_embeddings=values.get("tie_word_embeddings", False),
          bos_token_id=values.get("bos_token_id"),
          eos_token_id=_first(values.get("eos_token_id")),
          pad_token_id=values.get("pad_token_id"),
      )
    except KeyError as error:
      raise UserError(
          f"config.json lacks {error.args[0]!r}: it is not a decoder's config"
      ) from error

  def to_hf(self) -> dict[str, Any]:
    """The contents of a config.json that transformers loads."""
    values = asdict(self)
    family = values.pop("family")
    rope = {"rope_type": "default", "rope_theta": self.rope_theta}
    return {
        "architectures": [_ARCHITECTURES[family]],
        "model_type": family,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rope_parameters": rope,
        "torch_dtype": "float32",
        **values,
    }


def _refuse(present: Any, what: str) -> None:
  if present:
    raise UserError(f"the model uses {what}, which is not supported yet")


def _first(value: Any) -> Any:
  return value[0] if isinstance(value, list) else value
