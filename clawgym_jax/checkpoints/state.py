"""A training run's saved state as a checkpoint, or as the adapter it trained.

Its parameters are stacked arrays of an Orbax checkpoint; they are read a chunk
of layers at a time. The tokenizer's files come from the model folder that the
run started from. With LoRA the state holds the base's weights too, and its
config says rank, alpha and targets under `lora`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clawgym_jax.checkpoints import hf, names, peft, weights
from clawgym_jax.checkpoints.orbax import Checkpoints
from clawgym_jax.checkpoints.tensors import Tensor
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import ModelConfig
from clawgym_jax.models.layers.lora import LoraConfig

_ENDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def read(states: Checkpoints, start: Path) -> hf.Checkpoint:
  """The model of the newest whole state, its adapters merged into its weights.

  Args:
    states: a run's saved states.
    start: the model folder that the run started from.
  """
  tensors, config, lora = _split(states)
  files = hf.read_files(start)
  if not files:
    raise UserError(f"{start} has no tokenizer's files: give a model folder")
  ends = hf.read_json(start / "config.json")
  config |= {key: ends[key] for key in _ENDS if key in ends}
  model = hf.Checkpoint(
      config=config,
      tensors=names.fitting(ModelConfig.from_hf(config), tensors),
      files=files,
  )
  return model if lora is None else peft.merged(model, lora)


def adapter(states: Checkpoints, base: str) -> peft.Adapter:
  """The adapter of the newest whole state, for the base model called `base`."""
  _, _, lora = _split(states, base)
  if lora is None:
    raise UserError(f"{states.directory} was trained without LoRA: it has no adapter")
  return lora


def _split(
    states: Checkpoints, base: str = ""
) -> tuple[dict[str, Tensor], dict[str, Any], peft.Adapter | None]:
  stores, config = states.open_params()
  found: dict[str, Tensor] = {}
  factors: dict[str, Tensor] = {}
  for dotted, store in stores.items():
    path = tuple(int(p) if p.isdigit() else p for p in dotted.split("."))
    cuts = list(names.pieces(path, store.shape))
    lead = len(cuts[0][1])
    fetch = weights.stacked(store, lead)
    into = factors if names.is_lora(path) else found
    for name, index in cuts:
      into[name] = Tensor(
          store.shape[lead:],
          store.dtype.numpy_dtype,
          lambda fetch=fetch, index=index: fetch(index),
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
  return found, config, peft.of(factors, settings, base)
