"""Hugging Face model folders: read, and written so that transformers reads them.

A folder appears whole or not at all: it is written beside its name and then
renamed. It is absent only between two renames; what a kill leaves beside it, the
next save ends. A damaged or truncated file is a `UserError` that names it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from flax import nnx

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.checkpoints import names
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import room_for, write_json
from clawgym_jax.models import CausalLM, ModelConfig

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SHARD_BYTES = 5_000_000_000
_PARTIAL, _OLD = ".partial-", ".old-"


def load(
    directory: str | Path,
    *,
    param_dtype: Any = jnp.float32,
    compute_dtype: Any = jnp.float32,
    **kw: Any,
) -> tuple[CausalLM, Tokenizer]:
  """The model and tokenizer of a folder.

  Args:
    directory: with config.json, model.safetensors (or shards and their index)
      and the tokenizer's files.
    param_dtype, compute_dtype, kw: of `CausalLM`.

  Raises:
    UserError: a file is missing, damaged or of another model.
  """
  directory = Path(directory)
  config = load_config(directory)
  model = names.build(
      config,
      _Weights(directory),
      param_dtype=param_dtype,
      compute_dtype=compute_dtype,
      **kw,
  )
  return model, Tokenizer.load(directory)


def load_config(directory: Path) -> ModelConfig:
  """The shape that a folder's config.json states."""
  return ModelConfig.from_hf(_read_json(Path(directory) / "config.json"))


def save(
    directory: str | Path,
    model: CausalLM,
    tokenizer: Tokenizer,
    *,
    dtype: Any = None,
    shard_bytes: int = _SHARD_BYTES,
) -> None:
  """Writes `model` as a folder that transformers and `load` read.

  Args:
    directory: replaced if it is a model folder; anything else that is there is
      a `UserError`.
    dtype: of the weights on disk; the parameters' own by default.
    shard_bytes: most bytes of weights in one file.
  """
  directory = Path(directory).absolute()
  _refuse_other(directory)
  directory.parent.mkdir(parents=True, exist_ok=True)
  _end_killed_save(directory)
  partial = _beside(directory, _PARTIAL)
  try:
    with room_for(directory):
      weights = _write_weights(partial, model, dtype, shard_bytes)
      config = model.config.to_hf() | {"dtype": weights, "torch_dtype": weights}
      config |= {
          "eos_token_id": tokenizer.eos_id,
          "pad_token_id": tokenizer.pad_id,
      }
      write_json(partial / "config.json", config)
      ids = ("bos_token_id", "eos_token_id", "pad_token_id")
      generation = {key: config[key] for key in ids if config[key] is not None}
      write_json(partial / "generation_config.json", generation)
      tokenizer.save(partial)
      os.chmod(partial, 0o755)
      _replace(directory, partial)
  finally:
    shutil.rmtree(partial, ignore_errors=True)


class _Weights:
  """Reads tensors by name from a folder's safetensors files, opened lazily."""

  def __init__(self, directory: Path):
    self._directory = directory
    self._files: dict[str, Any] = {}
    self._where: dict[str, str] = {}
    if (directory / _INDEX).exists():
      self._where = _read_json(directory / _INDEX).get("weight_map", {})

  def __call__(self, name: str) -> np.ndarray:
    file_name = self._where.get(name, _SINGLE)
    path = self._directory / file_name
    try:
      if file_name not in self._files:
        self._files[file_name] = safetensors.safe_open(path, framework="flax")
      return np.asarray(self._files[file_name].get_tensor(name))
    except FileNotFoundError:
      raise UserError(
          f"{path} is missing: copy the model folder again, whole"
      ) from None
    except safetensors.SafetensorError as error:
      known = self._files.get(file_name)
      if known is not None and name not in known.keys():
        raise UserError(f"{path} has no tensor {name}") from None
      raise UserError(
          f"{path} is damaged ({error}): copy or write the file again"
      ) from error


def _write_weights(
    directory: Path, model: CausalLM, dtype: Any, shard_bytes: int
) -> str:
  """Writes the weights in files of at most `shard_bytes`; returns their dtype."""
  shards: list[dict[str, np.ndarray]] = [{}]
  size = total = 0
  for name, value in names.tensors(nnx.state(model, nnx.Param)):
    value = np.ascontiguousarray(value if dtype is None else value.astype(dtype))
    if shards[-1] and size + value.nbytes > shard_bytes:
      shards.append({})
      size = 0
    shards[-1][name] = value
    size += value.nbytes
    total += value.nbytes
  where = {}
  for index, shard in enumerate(shards, 1):
    name = f"model-{index:05d}-of-{len(shards):05d}.safetensors"
    name = _SINGLE if len(shards) == 1 else name
    where |= dict.fromkeys(shard, name)
    safetensors.numpy.save_file(shard, directory / name, {"format": "pt"})
    _sync(directory / name)
  if len(shards) > 1:
    index = {"metadata": {"total_size": total}, "weight_map": where}
    write_json(directory / _INDEX, index)
  kinds = {value.dtype for shard in shards for value in shard.values()}
  return "bfloat16" if kinds == {np.dtype(jnp.bfloat16)} else "float32"


def _refuse_other(directory: Path) -> None:
  if not directory.exists():
    return
  if not directory.is_dir():
    raise UserError(f"{directory} is a file: give the name of a folder")
  if any(directory.iterdir()) and not (directory / "config.json").exists():
    raise UserError(
        f"{directory} holds something that is not a model: give another folder"
    )


def _replace(directory: Path, partial: Path) -> None:
  """Puts `partial` in the place of `directory`."""
  before = None
  if directory.exists():
    before = _beside(directory, _OLD)
    os.rename(directory, before)
  os.rename(partial, directory)
  _sync(directory.parent)
  if before is not None:
    shutil.rmtree(before)


def _beside(directory: Path, kind: str) -> Path:
  prefix = f".{directory.name}{kind}"
  return Path(tempfile.mkdtemp(dir=directory.parent, prefix=prefix))


def _end_killed_save(directory: Path) -> None:
  """Puts back the model that a killed save had moved away, and removes the rest."""
  for path in list(directory.parent.iterdir()):
    if path.name.startswith(f".{directory.name}{_OLD}"):
      if not directory.exists() and (path / "config.json").exists():
        os.rename(path, directory)
      else:
        shutil.rmtree(path)
    elif path.name.startswith(f".{directory.name}{_PARTIAL}"):
      shutil.rmtree(path)


def _read_json(path: Path) -> dict[str, Any]:
  try:
    return json.loads(path.read_text())
  except FileNotFoundError:
    raise UserError(
        f"{path} is missing: {path.parent} is not a Hugging Face model folder"
    ) from None
  except ValueError as error:
    raise UserError(f"{path} is damaged ({error}): write it again") from error


def _sync(path: Path) -> None:
  handle = os.open(path, os.O_RDONLY)
  try:
    os.fsync(handle)
  finally:
    os.close(handle)
