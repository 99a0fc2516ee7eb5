"""LoRA adapters in the format of the `peft` library: read, written, merged.

A folder has adapter_config.json and adapter_model.safetensors, whose tensors
are `base_model.model.` + the linear layer's Hugging Face name + `.lora_A.weight`
[rank, in] or `.lora_B.weight` [out, rank]. Merged: W + scale * B A, in float32,
then W's type; scale = alpha / rank. What an adapter of another kind computes
besides that is refused by name, and so is an adapter of another base.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from clawgym_jax.checkpoints import folder, hf, names, safetensors
from clawgym_jax.checkpoints.tensors import BLOCK, Tensor
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_json
from clawgym_jax.models import CausalLM
from clawgym_jax.models.layers.lora import LoraConfig

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
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
  """

  config: LoraConfig
  factors: dict[str, tuple[Tensor, Tensor]]
  base: str = ""


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
  tensors = safetensors.read_file(directory / _WEIGHTS)
  rank = values.get("r")
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
  config = LoraConfig(
      rank=rank, alpha=float(values.get("lora_alpha", rank)), targets=targets
  )
  return Adapter(
      config=config, factors=factors, base=values.get("base_model_name_or_path") or ""
  )


def write(
    directory: str | Path,
    adapter: Adapter,
    *,
    done: Callable[[int], Any] = lambda nbytes: None,
) -> None:
  """Writes a folder that `peft` loads; replaces an adapter, never another thing."""
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
    write_json(partial / _CONFIG, values)


def merged(model: hf.Checkpoint, adapter: Adapter) -> hf.Checkpoint:
  """`model` with the adapter's changes in its weights.

  Raises:
    UserError: the adapter is of another base.
  """
  _check_base(model, adapter)
  tensors = dict(model.tensors)
  for name, pair in adapter.factors.items():
    tensors[name] = _changed(tensors[name], *pair, adapter.config.scale)
  return replace(model, tensors=tensors)


def restore(model: CausalLM, adapter: Adapter) -> None:
  """Puts an adapter into a model made with its `LoraConfig`, on the model's mesh.

  Raises:
    UserError: the model has other adapted layers, or other shapes.
  """
  left = dict(adapter.factors)
  state = nnx.state(model, nnx.LoRAParam)

  def load(path: names.Path, variable: nnx.Variable) -> nnx.Variable:
    current = variable[...]
    value = np.empty(current.shape, current.dtype)
    for name, index in names.pieces(path, current.shape):
      module, factor, _ = name.rsplit(".", 2)
      if f"{module}.weight" not in adapter.factors:
        raise UserError(f"the adapter has nothing for {module}, which the model adapts")
      tensor = adapter.factors[f"{module}.weight"][factor == "lora_B"]
      if tensor.shape != value[index].shape:
        raise UserError(
            f"the adapter of {module} has shape {tensor.shape} where the model has"
            f" {value[index].shape}: it is of another base"
        )
      value[index] = tensor.read()
      left.pop(f"{module}.weight", None)
    return variable.replace(jax.device_put(value, current.sharding))

  state = nnx.map_state(load, state)
  if left:
    raise UserError(f"the adapter changes {min(left)}, which the model does not adapt")
  nnx.update(model, state)


def of(params: dict[str, Tensor], config: LoraConfig, base: str = "") -> Adapter:
  """The adapter in tensors named `...q_proj.lora_A.weight` and `...lora_B.weight`."""
  factors = {}
  for name in params:
    if name.endswith(_A):
      module = name.removesuffix(_A)
      factors[f"{module}.weight"] = (params[name], params[f"{module}{_B}"])
  return Adapter(config=config, factors=factors, base=base)


def _check_base(model: hf.Checkpoint, adapter: Adapter) -> None:
  own = str(model.config.get("_name_or_path") or "")
  if own and adapter.base and _last(own) != _last(adapter.base):
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


def _last(name: str) -> str:
  return name.rstrip("/").rsplit("/", 1)[-1].lower()


def _changed(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
  def read() -> np.ndarray:
    source = weight.read()
    right, left = a.read().astype(np.float32), b.read().astype(np.float32)
    out = np.empty(weight.shape, weight.dtype)
    rows = max(BLOCK // weight.shape[1], 1)
    for start in range(0, weight.shape[0], rows):
      at = slice(start, start + rows)
      out[at] = source[at].astype(np.float32) + scale * (left[at] @ right)
    return out

  return replace(weight, read=read, at=None)
