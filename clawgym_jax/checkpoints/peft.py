"""LoRA adapters in the format of the `peft` library: read, written, merged.

A folder has adapter_config.json and adapter_model.safetensors, whose tensors
are `base_model.model.` + the linear layer's Hugging Face name + `.lora_A.weight`
[rank, in] or `.lora_B.weight` [out, rank]. Merged: W + scale * B A, in float32,
then W's type; scale = alpha / rank. What an adapter of another kind computes
besides that is refused by name, and so is an adapter of another base: it is
known by its name, or, where this project wrote the adapter, by a few of the
weights that it changes, in base_weights.json (peft looks at the other two alone).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from clawgym_jax.checkpoints import folder, hf, safetensors
from clawgym_jax.checkpoints.tensors import BLOCK, Tensor, put
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_json
from clawgym_jax.models.layers.lora import LoraConfig

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_BASE = "base_weights.json"
_SAMPLES = 8  # of each weight
_ROUNDING = 2**-8  # more than a base differs from itself in another float type
_INITS = (True, False, "gaussian", "eva")
"""Ways to start A and B that leave the base as it is; others change it too."""
_PREFIX = "base_model.model."
_A, _B = ".lora_A.weight", ".lora_B.weight"
_UNSUPPORTED = (
    "use_dora",
    "use_rslora",
    "use_qalora",
    "fan_in_fan_out",
    "lora_bias",
    "modules_to_save",
    "rank_pattern",
    "alpha_pattern",
    "layer_replication",
    "target_parameters",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "megatron_config",
)
"""Settings that change what an adapter computes: refused unless null, false or empty."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
  """An adapter that is not in memory.

  Attributes:
    config: rank, alpha and the layers' last names.
    factors: A and B by the Hugging Face name of the weight they change.
    base: the name of its base model; "" where none is given.
    known: some values of each weight of the base that it changes; empty where
      another program wrote it.
  """

  config: LoraConfig
  factors: dict[str, tuple[Tensor, Tensor]]
  base: str = ""
  known: dict[str, list[float]] = field(default_factory=dict)


def read(directory: str | Path) -> Adapter:
  """The adapter of a folder; `UserError` where it is damaged or does more than LoRA."""
  directory = Path(directory)
  path = directory / _CONFIG
  if not path.exists():
    raise UserError(f"{path} is missing: {directory} is not an adapter of peft")
  values = hf.read_json(path)
  if values.get("peft_type") != "LORA":
    raise UserError(f"{path} is of type {values.get('peft_type')!r}; LORA is read here")
  for name in _UNSUPPORTED:
    if values.get(name):
      raise UserError(f"{path} uses {name}, which is not supported yet")
  if values.get("bias", "none") != "none":
    raise UserError(f"{path} uses bias {values['bias']!r}, which is not supported yet")
  start = values.get("init_lora_weights", True)
  if start not in _INITS:
    raise UserError(
        f"{path} uses init_lora_weights {start!r}, which changes the base too: save"
        " the adapter as plain LoRA (peft: path_initial_model_for_weight_conversion)"
    )
  rank, alpha = values.get("r"), values.get("lora_alpha")
  if type(alpha) not in (int, float) or alpha > sys.float_info.max:
    raise UserError(f"{path} has no number lora_alpha: the adapter's scale is not known")
  if type(rank) is not int:
    raise UserError(f"{path} has the rank r {rank!r}: it must be a whole number")
  tensors = safetensors.read_file(directory / _WEIGHTS)
  factors = {}
  for name, tensor in tensors.items():
    module = name.removeprefix(_PREFIX).removesuffix(_A).removesuffix(_B)
    if name not in (f"{_PREFIX}{module}{_A}", f"{_PREFIX}{module}{_B}"):
      raise UserError(f"{directory} has a tensor {name}, which is not LoRA's A or B")
    pair = [tensors.get(f"{_PREFIX}{module}{end}") for end in (_A, _B)]
    if None in pair:
      raise UserError(f"{directory} has only one of LoRA's A and B for {module}")
    a, b = pair
    if len(a.shape) != 2 or len(b.shape) != 2 or {a.shape[0], b.shape[1]} != {rank}:
      raise UserError(
          f"the adapter of {module} has shapes {a.shape} and {b.shape}, of another"
          f" rank than {path}'s {rank}"
      )
    factors[f"{module}.weight"] = (a, b)
  targets = tuple(sorted({name.split(".")[-2] for name in factors}))
  return Adapter(
      config=LoraConfig(rank=rank, alpha=float(alpha), targets=targets),
      factors=factors,
      base=str(values.get("base_model_name_or_path") or ""),
      known=hf.read_json(directory / _BASE) if (directory / _BASE).exists() else {},
  )


def write(
    directory: str | Path,
    adapter: Adapter,
    *,
    done: Callable[[int], Any] = lambda nbytes: None,
) -> None:
  """Writes a folder that `peft` loads; `directory` as `hf.write` takes it."""
  config = adapter.config
  values = {
      "peft_type": "LORA",
      "task_type": "CAUSAL_LM",
      "base_model_name_or_path": adapter.base or None,
      "r": config.rank,
      "lora_alpha": config.alpha,
      "lora_dropout": 0.0,
      "target_modules": list(config.targets),
      "bias": "none",
      "fan_in_fan_out": False,
      "init_lora_weights": True,
      "inference_mode": True,
      "modules_to_save": None,
  }
  tensors = {
      f"{_PREFIX}{name.removesuffix('.weight')}{end}": tensor
      for name, pair in adapter.factors.items()
      for end, tensor in zip((_A, _B), pair)
  }
  with folder.written(directory) as partial:
    safetensors.write_file(partial / _WEIGHTS, tensors, done=done)
    if adapter.known:
      write_json(partial / _BASE, adapter.known)
    write_json(partial / _CONFIG, values)


def merged(model: hf.Checkpoint, adapter: Adapter) -> hf.Checkpoint:
  """`model` with the adapter's changes in its weights.

  Raises:
    UserError: the adapter is of another base.
  """
  _check_base(model, adapter)
  tensors = dict(model.tensors)
  for name, pair in adapter.factors.items():
    tensors[name] = _changed(name, tensors[name], *pair, adapter.config.scale)
  return replace(model, tensors=tensors)


def of(params: dict[str, Tensor], config: LoraConfig) -> Adapter:
  """The adapter in tensors named `...q_proj.lora_A.weight` and `...lora_B.weight`."""
  factors = {}
  for name in params:
    if name.endswith(_A):
      module = name.removesuffix(_A)
      factors[f"{module}.weight"] = (params[name], params[f"{module}{_B}"])
  return Adapter(config=config, factors=factors)


def based_on(adapter: Adapter, base: str, tensors: dict[str, Tensor]) -> Adapter:
  """`adapter` with its base's name and what its base's weights are known by."""
  known = {name: _sample(tensors[name]).tolist() for name in adapter.factors}
  return replace(adapter, base=base, known=known)


def _check_base(model: hf.Checkpoint, adapter: Adapter) -> None:
  own = str(model.config.get("_name_or_path") or "")
  called = {_last(own), _last(model.name)}
  if own and adapter.base and not adapter.known and _last(adapter.base) not in called:
    raise UserError(
        f"the adapter is of the base {adapter.base}, and this model is {own}: give"
        " that base, or correct base_model_name_or_path in adapter_config.json"
    )
  for name, (a, b) in adapter.factors.items():
    if name not in model.tensors:
      raise UserError(f"the adapter changes {name}, which the base does not have")
    shape = (b.shape[0], a.shape[1])
    if model.tensors[name].shape != shape:
      raise UserError(
          f"the adapter changes {name} of shape {shape}, and the base's has"
          f" {model.tensors[name].shape}: it is of another base"
      )
  if not adapter.known:
    return
  try:
    with np.errstate(over="ignore"):
      known = np.array([adapter.known[name] for name in adapter.factors], np.float32)
    found = np.array([_sample(model.tensors[name]) for name in adapter.factors])
    if not np.isfinite(known).all():
      raise ValueError("it holds what is no number")
    apart = np.linalg.norm(found - known) > _ROUNDING * np.linalg.norm(known)
  except (KeyError, ValueError, TypeError) as error:
    raise UserError(f"the adapter's {_BASE} is damaged: write the adapter again") from error
  if apart:
    raise UserError(
        f"the adapter is of the base {adapter.base}, and this model's weights are"
        f" others: give that base, or delete the adapter's {_BASE} to merge all the"
        " same"
    )


def _sample(weight: Tensor) -> np.ndarray:
  """float32 [_SAMPLES]: values of a weight's middle row, zeros past its end."""
  row = weight.read()[weight.shape[0] // 2]
  found = row[:: max(len(row) // _SAMPLES, 1)][:_SAMPLES].astype(np.float32)
  return np.pad(found, (0, _SAMPLES - len(found)))


def _last(name: str) -> str:
  return name.rstrip("/").rsplit("/", 1)[-1].lower()


def _changed(
    name: str, weight: Tensor, a: Tensor, b: Tensor, scale: float
) -> Tensor:
  def read() -> np.ndarray:
    source = weight.read()
    right, left = a.read().astype(np.float32), b.read().astype(np.float32)
    if not (np.isfinite(right).all() and np.isfinite(left).all()):
      raise UserError(f"the adapter of {name} holds values that are no numbers")
    out = np.empty(weight.shape, weight.dtype)
    rows = max(BLOCK // weight.shape[1], 1)
    for start in range(0, weight.shape[0], rows):
      at = slice(start, start + rows)
      put(name, source[at].astype(np.float32) + scale * (left[at] @ right), out[at])
    return out

  return replace(weight, read=read, at=None)
