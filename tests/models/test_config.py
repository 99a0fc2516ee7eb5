"""A config goes to Hugging Face's names and back; what isn't computed is refused."""

from __future__ import annotations

import pytest
import transformers

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import ModelConfig
from tests.models.peer import CONFIGS


@pytest.mark.parametrize("name", CONFIGS)
def test_round_trip(name):
  config = CONFIGS[name]
  values = config.to_hf()
  assert ModelConfig.from_hf(values) == config
  # What transformers makes of it and writes again says the same.
  kind = values.pop("model_type")
  theirs = transformers.AutoConfig.for_model(kind, **values)
  assert ModelConfig.from_hf(theirs.to_dict()) == config


@pytest.mark.parametrize("name", CONFIGS)
def test_old_spelling(name):
  """Without `rope_parameters`, as transformers 4 wrote configs."""
  values = CONFIGS[name].to_hf()
  del values["rope_parameters"]
  assert ModelConfig.from_hf(values) == CONFIGS[name]


def test_gemma_settings_left_out():
  values = CONFIGS["gemma3_text"].to_hf() | {"num_hidden_layers": 7}
  for name in (
      "layer_types",
      "rope_parameters",
      "rope_theta",
      "rope_local_base_freq",
      "query_pre_attn_scalar",
      "sliding_window",
      "tie_word_embeddings",
  ):
    del values[name]
  config = ModelConfig.from_hf(values)
  theirs = transformers.Gemma3TextConfig(**values)
  assert list(config.layer_types) == theirs.layer_types
  assert config.sliding_window == theirs.sliding_window
  assert config.query_pre_attn_scalar == theirs.query_pre_attn_scalar
  assert config.tie_word_embeddings
  assert (config.rope_theta, config.rope_local_base_freq) == (1e6, 1e4)
  config = ModelConfig.from_hf(values | {"sliding_window_pattern": 2})
  assert [kind[:4] for kind in config.layer_types] == ["slid", "full"] * 3 + ["slid"]


def test_scaling_of_full_layers_alone():
  """Gemma's `rope_scaling` is of the full layers, as in transformers."""
  values = CONFIGS["gemma3_text"].to_hf()
  values["rope_scaling"] = {"rope_type": "linear", "factor": 8.0}
  theirs = transformers.Gemma3TextConfig(**values).rope_parameters
  assert theirs["full_attention"]["factor"] == 8.0
  assert "factor" not in theirs["sliding_attention"]
  assert ModelConfig.from_hf(values) == CONFIGS["gemma3_linear"]


REQUIRED = ["model_type", "vocab_size", "hidden_size", "intermediate_size"]
REQUIRED += ["num_hidden_layers", "num_attention_heads"]


@pytest.mark.parametrize("name", REQUIRED)
def test_a_setting_left_out(name):
  values = CONFIGS["llama"].to_hf()
  del values[name]
  with pytest.raises(UserError, match=f"lacks '{name}'"):
    ModelConfig.from_hf(values)


def test_heads_left_out():
  values = CONFIGS["llama"].to_hf() | {"num_key_value_heads": None, "head_dim": None}
  config = ModelConfig.from_hf(values)
  assert (config.num_key_value_heads, config.head_dim) == (3, 16)


REFUSED = [
    ("llama", {"model_type": "bert"}, "bert"),
    ("llama", {"model_type": "gemma3"}, "text_config"),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
    ("llama", {"rope_parameters": {"factor": 4.0, "rope_theta": 1e4}}, "factor"),
    ("llama", {"rope_scaling": {"type": "default", "factor": 4.0}}, "factor"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ("llama", {"num_attention_heads": 0}, "num_attention_heads 0"),
    ("llama", {"num_key_value_heads": "3"}, "num_key_value_heads '3'"),
    ("llama", {"num_hidden_layers": 10**9}, "1000 at most"),
    ("llama", {"model_type": []}, "model_type"),
    ("llama", {"eos_token_id": []}, "eos_token_id"),
    ("llama", {"bos_token_id": [1, 2]}, "bos_token_id"),
    ("llama", {"rms_norm_eps": "x"}, "rms_norm_eps 'x'"),
    ("llama", {"tie_word_embeddings": "false"}, "tie_word_embeddings 'false'"),
    ("llama", {"rope_parameters": {"rope_theta": "x"}}, "another kind"),
    ("llama", {"rope_scaling": {"type": "linear", "factor": []}}, "another kind"),
    ("llama", {"rope_scaling": {"type": "yarn", "factor": 2.0, "mscale": "x"}}, "mscale"),
    ("gemma3_text", {"layer_types": 3}, "another kind"),
    ("llama", {"attention_bias": True}, "attention_bias"),
    ("llama", {"mlp_bias": True}, "mlp_bias"),
    ("llama", {"hidden_act": "gelu"}, "gelu"),
    ("llama", {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
    ("qwen2", {"use_sliding_window": True}, "sliding"),
    ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
    ("qwen3", {"rope_parameters": {"full_attention": {
        "rope_type": "linear", "factor": 2.0}}}, "full_attention"),
    ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step"),
    ("qwen3_moe", {"mlp_only_layers": [0]}, "mlp_only_layers"),
    ("qwen3_moe", {"num_experts_per_tok": 9}, "9 experts"),
    ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    ("gemma3_text", {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    ("gemma3_text", {"use_bidirectional_attention": True}, "bidirectional"),
    ("gemma3_text", {"hidden_activation": "silu"}, "silu"),
    ("gemma3_text", {"layer_types": ["full_attention"]}, "1 entries for 3"),
    ("gemma3_text", {"layer_types": ["chunked_attention"] * 3}, "chunked"),
    ("gemma3_text", {"rope_parameters": {"sliding_attention": {
        "rope_type": "linear", "factor": 2.0}}}, "sliding layers"),
    ("gemma3_text", {"rope_parameters": {
        "rope_type": "linear", "factor": 2.0}}, "factor, rope_type"),
    ("gemma3_text", {"rope_parameters": {"full_attention": {"factor": 2.0}}}, "factor"),
    ("gemma3_text", {"rope_scaling": {"factor": 2.0}}, "factor"),
]  # fmt: skip


@pytest.mark.parametrize("name,change,named", REFUSED)
def test_refusals(name, change, named):
  with pytest.raises(UserError, match=named):
    ModelConfig.from_hf(CONFIGS[name].to_hf() | change)


def test_a_setting_of_another_family_is_refused():
  values = {"family": "llama", "vocab_size": 9, "hidden_size": 8, "head_dim": 4}
  values |= {"intermediate_size": 8, "num_hidden_layers": 1}
  values |= {"num_attention_heads": 2, "num_key_value_heads": 1}
  ModelConfig(**values)
  with pytest.raises(UserError, match="sliding_window"):
    ModelConfig(**values, sliding_window=4)
  with pytest.raises(UserError, match="lacks num_experts"):
    ModelConfig(**values | {"family": "qwen3_moe"})
