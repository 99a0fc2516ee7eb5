"""Scaled frequencies are transformers', for the settings that models ship with."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models.rope_scaling import RopeScaling

pytest.importorskip("torch")  # the peer computes with it

SHIPPED = {
    "qwen3 to 131072": (1e6, 40960, {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    "qwen2.5, old spelling": (1e6, 32768, {
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    "qwen3 to 65536": (1e6, 65536, {
        "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32768}),
    "yarn, all settings": (1e4, 4096, {
        "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096,
        "beta_fast": 16, "beta_slow": 2, "mscale": 1.0, "mscale_all_dim": 0.7,
        "truncate": False}),
    "yarn, given attention": (1e4, 4096, {
        "rope_type": "yarn", "factor": 8.0, "attention_factor": 1.3,
        "original_max_position_embeddings": 4096}),
    "yarn, length of the model": (1e4, 4096, {"rope_type": "yarn", "factor": 2.0}),
    "llama 3.1": (5e5, 131072, {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    "llama 3.2": (5e5, 131072, {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    "gemma 3": (1e6, 131072, {"rope_type": "linear", "factor": 8.0}),
}  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_frequencies(name, head_dim):
  theta, length, values = SHIPPED[name]
  scaling = RopeScaling.from_hf(values, length)
  plain = theta ** -(np.arange(0, head_dim, 2) / head_dim)
  got, factor = scaling.scaled(plain, head_dim, theta)
  config = AutoConfig.for_model(
      "llama",
      hidden_size=4 * head_dim,
      num_attention_heads=4,
      head_dim=head_dim,
      max_position_embeddings=length,
      rope_parameters=dict(values, rope_theta=theta),
  )
  expected, expected_factor = ROPE_INIT_FUNCTIONS[scaling.kind](config, "cpu")
  np.testing.assert_allclose(got, expected.numpy(), rtol=2e-6)
  assert factor == pytest.approx(expected_factor, rel=1e-12)
  assert np.max(np.abs(got / plain - 1)) > 0.4  # or the test would show nothing
  assert RopeScaling.from_hf(scaling.to_hf(), length) == scaling


@pytest.mark.parametrize(
    "values,named",
    [
        ({"rope_type": "dynamic", "factor": 2.0}, "dynamic"),
        ({"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0]}, "longrope"),
        ({"rope_type": "linear"}, "factor"),
        ({"rope_type": "linear", "factor": 0.5}, "0.5"),
        ({"rope_type": "linear", "factor": 2.0, "beta_fast": 3.0}, "beta_fast"),
        ({"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0}, "high_freq"),
        ({"rope_type": "yarn", "factor": 2.0, "beta_fast": 1, "beta_slow": 2}, "bounds"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary"),
        ({"factor": 4.0}, "factor"),
        ({"rope_type": "default", "beta_fast": 32.0}, "beta_fast"),
        ({"full_attention": {"rope_type": "default"}}, "full_attention"),
    ],
)
def test_refusals(values, named):
  with pytest.raises(UserError, match=named):
    RopeScaling.from_hf(values, 4096)


def test_no_scaling():
  assert RopeScaling.from_hf({"rope_type": "default", "rope_theta": 1e4}, 4096) is None
  assert RopeScaling.from_hf({}, 4096) is None
