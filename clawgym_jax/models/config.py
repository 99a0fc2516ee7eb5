"""A model's shape, under Hugging Face's names.

`from_hf(to_hf())` gives the same config back, and `to_hf()` is a config.json
that transformers loads. What this code does not compute (sliding windows
outside Gemma, soft caps, an unknown RoPE scaling, quantised weights) is
refused by name, never ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models.rope_scaling import RopeScaling

_ARCHITECTURES = {
    "gemma3_text": "Gemma3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
_OF_ONE_FAMILY = {
    "gemma3_text": (
        "sliding_window",
        "layer_types",
        "rope_local_base_freq",
        "query_pre_attn_scalar",
    ),
    "qwen3_moe": (
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "norm_topk_prob",
    ),
}
"""Fields that one family needs and every other leaves None."""
_GEMMA_ACTIVATION = "gelu_pytorch_tanh"
_GEMMA_PATTERN = 6  # every sixth layer is global where no list says which
_SLIDING, _FULL = "sliding_attention", "full_attention"
_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)
"""Whole numbers; a config.json may leave out the last two."""
_COUNTS = (
    "max_position_embeddings",
    "num_experts",
    "num_local_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "sliding_window",
    "sliding_window_pattern",
)
_NUMBERS = ("rms_norm_eps", "rope_theta", "rope_local_base_freq", "query_pre_attn_scalar")
_SWITCHES = ("tie_word_embeddings", "norm_topk_prob")
_MOST = {"num_hidden_layers": 1000, "num_experts": 1000, "num_local_experts": 1000}
"""What is listed one by one, before the weights show that there are fewer."""
_MOST_WHOLE = 2**31 - 1
_UNSUPPORTED = (
    "mlp_bias",
    "use_sliding_window",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "use_bidirectional_attention",
    "mlp_only_layers",
    "quantization_config",
)
"""Settings that change what a model computes: refused unless null, false or empty."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
  """Shape of a decoder. `family` is Hugging Face's `model_type`.

  `norm_topk_prob` and above are of qwen3_moe, the fields after it of
  gemma3_text; `layer_types` says layer by layer `sliding_attention` or
  `full_attention`, and `rope_theta` and `rope_scaling` are those of the full ones.
  """

  family: str
  vocab_size: int
  hidden_size: int
  intermediate_size: int
  num_hidden_layers: int
  num_attention_heads: int
  num_key_value_heads: int
  head_dim: int
  rope_theta: float = 10000.0
  rope_scaling: RopeScaling | None = None
  rms_norm_eps: float = 1e-5
  max_position_embeddings: int = 2048
  tie_word_embeddings: bool = True
  bos_token_id: int | None = None
  eos_token_id: int | None = None
  pad_token_id: int | None = None
  num_experts: int | None = None
  num_experts_per_tok: int | None = None
  moe_intermediate_size: int | None = None
  norm_topk_prob: bool | None = None
  sliding_window: int | None = None
  layer_types: tuple[str, ...] | None = None
  rope_local_base_freq: float | None = None
  query_pre_attn_scalar: float | None = None

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
    for family, names in _OF_ONE_FAMILY.items():
      for name in names:
        if (getattr(self, name) is None) == (family == self.family):
          raise UserError(
              f"a {self.family} config {'lacks' if family == self.family else 'has'}"
              f" {name}, which is a setting of {family}"
          )
    if self.num_experts is not None:
      if not 0 < self.num_experts_per_tok <= self.num_experts:
        raise UserError(
            f"{self.num_experts_per_tok} experts a token of {self.num_experts}"
        )
    if self.layer_types is not None:
      self._check_layer_types()

  def _check_layer_types(self) -> None:
    unknown = set(self.layer_types) - {_SLIDING, _FULL}
    if unknown:
      raise UserError(f"layer_types names {', '.join(sorted(unknown))}")
    if len(self.layer_types) != self.num_hidden_layers:
      raise UserError(
          f"layer_types has {len(self.layer_types)} entries for"
          f" {self.num_hidden_layers} layers"
      )
    if self.sliding_window < 1:
      raise UserError(f"sliding_window is {self.sliding_window} tokens")

  @property
  def sliding_layers(self) -> tuple[bool, ...] | None:
    """Whether each layer's attention slides; None for a family without windows."""
    if self.layer_types is None:
      return None
    return tuple(kind == _SLIDING for kind in self.layer_types)

  @classmethod
  def from_hf(cls, values: dict[str, Any]) -> ModelConfig:
    """From the contents of a config.json; raises `UserError` on what is not supported."""
    try:
      family = values["model_type"]
      _check_kinds(values)
      _check_supported(values, family)
      length = values.get("max_position_embeddings", 2048)
      return cls(
          family=family,
          **_sizes(values),
          rms_norm_eps=values.get("rms_norm_eps", 1e-6),
          max_position_embeddings=length,
          # transformers leaves out what is its class's default.
          tie_word_embeddings=values.get(
              "tie_word_embeddings", family == "gemma3_text"
          ),
          bos_token_id=values.get("bos_token_id"),
          eos_token_id=_first(values.get("eos_token_id")),
          pad_token_id=values.get("pad_token_id"),
          **_of_experts(values, family),
          **(_of_gemma if family == "gemma3_text" else _of_rope)(values, length),
      )
    except KeyError as error:
      raise UserError(
          f"config.json lacks {error.args[0]!r}: it is not a decoder's config"
      ) from error
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
      raise UserError(
          f"config.json has a setting of another kind than it should be ({error})"
      ) from error

  def to_hf(self) -> dict[str, Any]:
    """The contents of a config.json that transformers loads.

    RoPE is written in transformers' new spelling and in the old one, which
    other readers know.
    """
    values = {name: value for name, value in asdict(self).items() if value is not None}
    family = values.pop("family")
    rope: dict[str, Any] = {"rope_type": "default"}
    if self.rope_scaling is not None:
      rope = self.rope_scaling.to_hf()
      values["rope_scaling"] = rope
    rope = rope | {"rope_theta": self.rope_theta}
    activation = {"hidden_act": "silu"}
    if family == "gemma3_text":
      activation = {"hidden_activation": _GEMMA_ACTIVATION}
      local = {"rope_type": "default", "rope_theta": self.rope_local_base_freq}
      rope = {_FULL: rope, _SLIDING: local}
      values["layer_types"] = list(self.layer_types)
    if family == "qwen3_moe":
      values |= {"decoder_sparse_step": 1, "mlp_only_layers": []}
    if family != "qwen2":  # which always has biases, and no such setting
      values["attention_bias"] = False
    tokens = {
        name: getattr(self, name)
        for name in ("bos_token_id", "eos_token_id", "pad_token_id")
    }
    return {
        "architectures": [_ARCHITECTURES[family]],
        "model_type": family,
        **activation,
        "attention_dropout": 0.0,
        "rope_parameters": rope,
        "torch_dtype": "float32",
        **values,
        **tokens,  # null said aloud: transformers has defaults
    }


def _check_kinds(values: dict[str, Any]) -> None:
  """`UserError` for a setting that is there and of another kind than it should be."""

  def check(names: tuple[str, ...], fits: Callable[[Any], bool], what: str) -> None:
    for name in names:
      value = values.get(name)
      if value is not None and not fits(value):
        raise UserError(f"config.json has {name} {value!r}: it must be {what}")

  check(("model_type",), lambda v: isinstance(v, str), "a name")
  check(_SIZES, lambda v: type(v) is int and v > 0, "a whole number, 1 or more")
  check(_COUNTS, lambda v: type(v) is int and v >= 0, "a whole number")
  for name in (*_SIZES, *_COUNTS):
    most = _MOST.get(name, _MOST_WHOLE)
    check((name,), lambda v, most=most: v <= most, f"{most} at most")
  check(
      _NUMBERS,
      lambda v: type(v) in (int, float) and 0 < v < math.inf,
      "a number above 0",
  )
  check(_SWITCHES, lambda v: type(v) is bool, "true or false")
  check(("bos_token_id", "pad_token_id"), lambda v: type(v) is int, "a token's id")
  check(
      ("eos_token_id",),
      lambda v: v != [] and type(_first(v)) is int,
      "a token's id or a list of them",
  )


def _check_supported(values: dict[str, Any], family: str) -> None:
  if family == "gemma3":
    raise UserError(
        "model type 'gemma3' sees images, which is not supported: take its text"
        " model alone, with text_config as config.json (model_type gemma3_text)"
        " and the tensors of language_model under names without that prefix"
    )
  for name in _UNSUPPORTED:
    _refuse(values.get(name), name)
  _refuse((values.get("partial_rotary_factor") or 1.0) != 1.0, "partial_rotary_factor")
  _refuse(family != "qwen2" and values.get("attention_bias"), "attention_bias")
  _refuse(values.get("decoder_sparse_step", 1) != 1, "decoder_sparse_step")
  types = values.get("layer_types") or ()
  _refuse(
      family != "gemma3_text" and any(kind != _FULL for kind in types),
      "layer_types other than full_attention",
  )
  names = {"gemma3_text": ("hidden_activation", "hidden_act")}.get(
      family, ("hidden_act",)
  )
  wanted = _GEMMA_ACTIVATION if family == "gemma3_text" else "silu"
  for name in names:
    activation = values.get(name) or wanted
    _refuse(activation != wanted, f"{name} {activation!r}")


def _sizes(values: dict[str, Any]) -> dict[str, int]:
  given = {name: values[name] for name in _SIZES if values.get(name) is not None}
  heads = given["num_attention_heads"]
  left_out = {
      "num_key_value_heads": heads,
      "head_dim": given["hidden_size"] // heads,
  }
  given = left_out | given
  return {name: given[name] for name in _SIZES}


def _of_rope(values: dict[str, Any], length: int) -> dict[str, Any]:
  rope = values.get("rope_scaling") or values.get("rope_parameters") or {}
  theta = rope.get("rope_theta") or values.get("rope_theta") or 10000.0
  scaling = RopeScaling.from_hf(rope, length)
  return {"rope_theta": float(theta), "rope_scaling": scaling}


def _of_experts(values: dict[str, Any], family: str) -> dict[str, Any]:
  if family != "qwen3_moe":
    return {}
  return {
      # transformers 5 has a second name for it.
      "num_experts": values.get("num_experts") or values["num_local_experts"],
      "num_experts_per_tok": values["num_experts_per_tok"],
      "moe_intermediate_size": values["moe_intermediate_size"],
      "norm_topk_prob": values.get("norm_topk_prob", False),
  }


def _of_gemma(values: dict[str, Any], length: int) -> dict[str, Any]:
  """Windows and the two RoPEs of Gemma 3; absent settings as in transformers."""
  ropes = values.get("rope_parameters") or {}
  flat = sorted(ropes.keys() - {_FULL, _SLIDING})
  if flat:  # which transformers does not read either
    raise UserError(
        f"rope_parameters has {', '.join(flat)}: a {values['model_type']} config"
        f" has one such object for {_FULL} and one for {_SLIDING}"
    )
  full = (ropes.get(_FULL) or {}) | (values.get("rope_scaling") or {})
  local = ropes.get(_SLIDING) or {}
  _refuse(
      RopeScaling.from_hf(local, length) is not None, "RoPE scaling of sliding layers"
  )
  theta = full.get("rope_theta") or values.get("rope_theta") or 1e6
  local_theta = (
      local.get("rope_theta") or values.get("rope_local_base_freq") or 1e4
  )
  types = values.get("layer_types")
  if types is None:
    pattern = values.get("sliding_window_pattern") or _GEMMA_PATTERN
    count = values["num_hidden_layers"]
    types = [_SLIDING if i % pattern else _FULL for i in range(1, count + 1)]
  return {
      "rope_theta": float(theta),
      "rope_scaling": RopeScaling.from_hf(full, length),
      "rope_local_base_freq": float(local_theta),
      "sliding_window": values.get("sliding_window") or 4096,
      "layer_types": tuple(types),
      "query_pre_attn_scalar": values.get("query_pre_attn_scalar", 256),
  }


def _refuse(present: Any, what: str) -> None:
  if present:
    raise UserError(f"the model uses {what}, which is not supported yet")


def _first(value: Any) -> Any:
  return value[0] if isinstance(value, list) else value
