"""Hugging Face model folders: read, and written so that transformers reads them.

Every format is read into a `Checkpoint` and written from one. A folder appears
whole or not at all (`folder.written`). A damaged, truncated or missing file is
a `UserError` that names it, before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from flax import nnx

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.checkpoints import folder, names, safetensors, weights
from clawgym_jax.checkpoints.tensors import Tensor, cast, kind
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_atomic, write_json
from clawgym_jax.models import CausalLM, ModelConfig, create

_CONFIG = "config.json"
_GENERATION = "generation_config.json"
_SENTENCEPIECE = "tokenizer.model"
IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
_KEPT = (
    _GENERATION,
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    _SENTENCEPIECE,
)
"""Files beside the weights, which go along byte for byte."""
_TEMPLATES = "additional_chat_templates"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
  """A model that is not in memory.

  Attributes:
    config: the contents of its config.json.
    tensors: by Hugging Face's names.
    files: what else belongs into its folder, by name.
    name: the folder that it was read from; "" where it is of none.
  """

  config: dict[str, Any]
  tensors: dict[str, Tensor]
  files: dict[str, bytes] = field(default_factory=dict)
  name: str = ""


def read(directory: str | Path) -> Checkpoint:
  """The model of a folder, its weights in safetensors files or Orbax's.

  Raises:
    UserError: a file is missing or damaged, the architecture is not known, or
      the weights are not the config's.
  """
  directory = Path(directory)
  config = read_json(directory / _CONFIG)
  orbax = (directory / weights.FOLDER).is_dir()
  tensors = (weights.read if orbax else safetensors.read_folder)(directory)
  return Checkpoint(
      config=config,
      tensors=names.fitting(ModelConfig.from_hf(config), tensors),
      files=read_files(directory),
      name=str(directory),
  )


def read_files(directory: Path) -> dict[str, bytes]:
  """The tokenizer's and the generation's files of a model folder."""
  paths = [directory / name for name in _KEPT]
  paths += sorted((directory / _TEMPLATES).glob("*.jinja"))
  return {
      str(path.relative_to(directory)): path.read_bytes()
      for path in paths
      if path.is_file()
  }


def write(
    directory: str | Path,
    model: Checkpoint,
    *,
    orbax: bool = False,
    dtype: Any = None,
    shard_bytes: int = safetensors.SHARD_BYTES,
    done: Callable[[int], Any] = lambda nbytes: None,
) -> None:
  """Writes `model` as a folder that `read` and, unless `orbax`, transformers read.

  Args:
    directory: replaced if it is a model folder; anything else that is there is
      a `UserError`.
    orbax: weights as an Orbax checkpoint, in place of safetensors files.
    dtype: of the weights on disk; the tensors' own by default.
    shard_bytes: most bytes of weights in one safetensors file.
    done: told of bytes of weights as they are written.
  """
  tensors = {name: cast(name, t, dtype) for name, t in model.tensors.items()}
  config = dict(model.config)
  if dtype is not None or not {"dtype", "torch_dtype"} & config.keys():
    config |= dict.fromkeys(("dtype", "torch_dtype"), kind(tensors))
  with folder.written(directory) as partial:
    if orbax:
      from clawgym_jax.checkpoints import weights_writer  # imports Orbax

      weights_writer.write(partial, tensors, done=done)
    else:
      safetensors.write_folder(partial, tensors, shard_bytes=shard_bytes, done=done)
    for name, data in model.files.items():
      write_atomic(partial / name, data)
    if _GENERATION not in model.files:
      ids = {key: config[key] for key in IDS if config.get(key) is not None}
      write_json(partial / _GENERATION, ids)
    write_json(partial / _CONFIG, config)


def load(
    directory: str | Path,
    *,
    param_dtype: Any = jnp.float32,
    compute_dtype: Any = jnp.float32,
    **kw: Any,
) -> tuple[CausalLM, Tokenizer]:
  """The model and tokenizer of a folder, on the mesh in use.

  Args:
    directory: what `read` takes, with the tokenizer's files.
    param_dtype, compute_dtype, kw: of `CausalLM`.

  Raises:
    UserError: a file is missing, damaged or of another model.
  """
  found = read(directory)
  model = names.build(
      ModelConfig.from_hf(found.config),
      found.tensors,
      param_dtype=param_dtype,
      compute_dtype=compute_dtype,
      **kw,
  )
  return model, Tokenizer.load(Path(directory))


def load_config(directory: Path) -> ModelConfig:
  """The shape that a folder's config.json states."""
  return ModelConfig.from_hf(read_json(Path(directory) / _CONFIG))


def save(
    directory: str | Path,
    model: CausalLM,
    tokenizer: Tokenizer,
    *,
    dtype: Any = None,
    shard_bytes: int = safetensors.SHARD_BYTES,
) -> None:
  """Writes a model in memory, its adapters merged; arguments as `write`'s."""
  state = nnx.state(create.merged(model), nnx.Param)
  checkpoint = of(model.config, names.tensors(state), tokenizer)
  write(directory, checkpoint, dtype=dtype, shard_bytes=shard_bytes)


def of(
    config: ModelConfig, tensors: dict[str, Tensor], tokenizer: Tokenizer
) -> Checkpoint:
  """The checkpoint of a model whose turns end as the tokenizer says."""
  ends = {"eos_token_id": tokenizer.eos_id, "pad_token_id": tokenizer.pad_id}
  values = config.to_hf() | ends
  values |= dict.fromkeys(("dtype", "torch_dtype"), kind(tensors))
  files = {
      name: text.encode("latin-1" if name == _SENTENCEPIECE else "utf-8")
      for name, text in tokenizer.to_files().items()
  }
  return Checkpoint(config=values, tensors=tensors, files=files)


def read_json(path: Path) -> dict[str, Any]:
  """A JSON object of a model folder; `UserError` where it is missing or damaged."""
  try:
    value = json_text.parse(path.read_text())
    if not isinstance(value, dict):
      raise ValueError("it is no JSON object")
    json_text.dump(value, indent=1)  # it may have to be written
  except FileNotFoundError:
    raise UserError(
        f"{path} is missing: {path.parent} is not a Hugging Face model folder"
    ) from None
  except ValueError as error:
    raise UserError(f"{path} is damaged ({error}): write it again") from error
  return value
