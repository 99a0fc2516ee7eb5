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
  values = CONFIGS["gemma3"].to_hf() | {"num_hidden_layers": 7}
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


REFUSED = [
    ("llama", {"model_type": "bert"}, "bert"),
    ("llama", {"model_type": "gemma3"}, "text_config"),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
    ("llama", {"attention_bias": True}, "attention_bias"),
    ("llama", {"mlp_bias": True}, "mlp_bias"),
    ("llama", {"hidden_act": "gelu"}, "gelu"),
    ("llama", {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
    ("qwen2", {"use_sliding_window": True}, "sliding"),
    ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
    ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step"),
    ("qwen3_moe", {"mlp_only_layers": [0]}, "mlp_only_layers"),
    ("qwen3_moe", {"num_experts_per_tok": 9}, "9 experts"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    ("gemma3", {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    ("gemma3", {"use_bidirectional_attention": True}, "bidirectional"),
    ("gemma3", {"hidden_activation": "silu"}, "silu"),
    ("gemma3", {"layer_types": ["full_attention"]}, "1 entries for 3"),
    ("gemma3", {"layer_types": ["chunked_attention"] * 3}, "chunked"),
    ("gemma3", {"rope_parameters": {"sliding_attention": {
        "rope_type": "linear", "factor": 2.0}}}, "sliding layers"),
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
