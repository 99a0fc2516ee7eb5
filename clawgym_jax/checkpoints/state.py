"""A training run's saved state as a checkpoint, or as the adapter it trained.

Its parameters are stacked arrays of an Orbax checkpoint, a layer a chunk, and are
read a layer at a time. The tokenizer's files come from the model folder that the
run started from. With LoRA the state holds the base's weights too, and its
config says rank, alpha and targets under `lora`.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts

from clawgym_jax.chat import tokenizer_files
from clawgym_jax.checkpoints import hf, names, peft
from clawgym_jax.checkpoints.orbax import Checkpoints
from clawgym_jax.checkpoints.tensors import Tensor
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import ModelConfig
from clawgym_jax.models.layers.lora import LoraConfig


def read(states: Checkpoints, start: Path) -> hf.Checkpoint:
  """The model of the newest whole state, its adapters merged into its weights.

  Args:
    states: a run's saved states.
    start: the model folder that the run started from.
  """
  tensors, config, lora = _split(states)
  files = hf.read_files(start)
  if not files.keys() & {tokenizer_files.BACKEND, tokenizer_files.MODEL}:
    raise UserError(
        f"{start} has no tokenizer's files: give the model folder that the run started"
        " from, or the hf/ that it wrote"
    )
  ends = hf.read_json(start / "config.json")
  sizes = config.get("vocab_size"), ends.get("vocab_size")
  if sizes[0] != sizes[1]:
    raise UserError(
        f"{states.directory} is of a model with {sizes[0]} tokens, and {start} has"
        f" {sizes[1]}: give the model folder that the run started from"
    )
  config |= {key: ends[key] for key in hf.IDS if key in ends}
  model = hf.Checkpoint(
      config=config,
      tensors=names.fitting(ModelConfig.from_hf(config), tensors),
      files=files,
  )
  return model if lora is None else peft.merged(model, lora)


def adapter(states: Checkpoints, base: str) -> peft.Adapter:
  """The adapter of the newest whole state.

  Args:
    states: a run's saved states.
    base: what the run started from; a folder whose config says a name of its own
      goes by that.
  """
  tensors, _, lora = _split(states)
  if lora is None:
    raise UserError(f"{states.directory} was trained without LoRA: it has no adapter")
  config = Path(base) / "config.json"
  if config.is_file():
    base = hf.read_json(config).get("_name_or_path") or base
  return peft.based_on(lora, base, tensors)


def _split(
    states: Checkpoints,
) -> tuple[dict[str, Tensor], dict[str, Any], peft.Adapter | None]:
  stores, config = states.open_params()
  found: dict[str, Tensor] = {}
  factors: dict[str, Tensor] = {}
  for dotted, store in stores.items():
    path = names.path_of(dotted)
    into = factors if names.is_lora(path) else found
    for name, index in names.pieces(path, store.shape):
      into[name] = Tensor(
          store.shape[len(index) :],
          store.dtype.numpy_dtype,
          functools.partial(_read, store, index, states.directory),
      )
  settings = config.pop("lora", None)
  if not factors:
    return found, config, None
  if settings is None:
    raise UserError(
        f"{states.directory} has LoRA's parameters, but its config does not say"
        " their rank and alpha: save the run again with this version"
    )
  settings = LoraConfig(**settings | {"targets": tuple(settings["targets"])})
  return found, config, peft.of(factors, settings)


def _read(store: ts.TensorStore, index: tuple[int, ...], where: Path) -> np.ndarray:
  try:
    return store[(*index, ...)].read().result()
  except ValueError as error:
    raise UserError(f"a saved state in {where} is damaged ({error})") from error
