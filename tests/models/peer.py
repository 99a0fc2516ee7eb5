"""The same random weights in transformers and here.

Weights are drawn so that every part of a model matters: transformers' own
initial values make logits so small that a wrong mask hardly shows.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.models import CausalLM, ModelConfig, create
from clawgym_jax.models.rope_scaling import RopeScaling

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCAB = 97
FAMILIES = {family: create.tiny_config(family, VOCAB) for family in create.TINY}
_YARN = RopeScaling(
    kind="yarn",
    factor=4.0,
    original_max_position_embeddings=8,
    beta_fast=32.0,
    beta_slow=1.0,
)
_LLAMA3 = RopeScaling(
    kind="llama3",
    factor=8.0,
    original_max_position_embeddings=8,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
)
SCALED = {
    "qwen3_yarn": replace(FAMILIES["qwen3"], rope_scaling=_YARN),
    "llama3": replace(FAMILIES["llama"], rope_scaling=_LLAMA3),
    "gemma3_linear": replace(
        FAMILIES["gemma3_text"], rope_scaling=RopeScaling(kind="linear", factor=8.0)
    ),
}
"""RoPE scalings whose original length the tests' inputs exceed."""
CONFIGS = FAMILIES | SCALED


def pair(
    config: ModelConfig, *, seed: int = 0, **kw
) -> tuple[transformers.PreTrainedModel, CausalLM]:
  """transformers' model (float32, eager) and ours, with equal weights."""
  theirs = reference(config, seed=seed)
  return theirs, load(config, tensors(theirs), **kw)


def reference(config: ModelConfig, *, seed: int = 0) -> transformers.PreTrainedModel:
  """transformers' model with weights that depend on their names and the seed."""
  values = config.to_hf()
  theirs = transformers.AutoModelForCausalLM.from_config(
      transformers.AutoConfig.for_model(values.pop("model_type"), **values),
      attn_implementation="eager",
  ).eval()
  rng = np.random.default_rng(seed)
  with torch.no_grad():
    for name, value in theirs.named_parameters():
      value.copy_(torch.from_numpy(_draw(name, tuple(value.shape), config, rng)))
  return theirs


def tensors(theirs: transformers.PreTrainedModel) -> dict[str, np.ndarray]:
  return {name: value.numpy() for name, value in theirs.state_dict().items()}


def _draw(name, shape, config, rng) -> np.ndarray:
  value = rng.normal(size=shape).astype(np.float32)
  if "norm" in name:
    return 0.2 * value + (0 if config.family == "gemma3_text" else 1)
  if "embed_tokens" in name:
    return 0.3 * value
  if name.endswith("bias"):
    return value
  return value * shape[-1] ** -0.5


def load(config: ModelConfig, tensors: dict[str, np.ndarray], **kw) -> CausalLM:
  """Our model from the state dict of transformers' module."""
  abstract = nnx.eval_shape(lambda: CausalLM(config, rngs=nnx.Rngs(0), **kw))
  graphdef, state = nnx.split(abstract)

  def read(path, variable):
    at = path.index("layers") + 1 if "layers" in path else None
    if at is None:
      return variable.replace(jnp.asarray(_tensor(path, tensors)))
    layers = [
        _tensor((*path[:at], index, *path[at:]), tensors)
        for index in range(config.num_hidden_layers)
    ]
    return variable.replace(jnp.asarray(np.stack(layers)))

  return nnx.merge(graphdef, nnx.map_state(read, state))


def _tensor(path, tensors: dict[str, np.ndarray]) -> np.ndarray:
  if "experts" not in path:
    return tensors[".".join(map(str, path))]
  # In memory transformers holds all experts in one tensor, gate and up joined.
  prefix, which = ".".join(map(str, path[:-2])), path[-2]
  if which == "down_proj":
    return tensors[f"{prefix}.down_proj"]
  joined = tensors[f"{prefix}.gate_up_proj"]
  return np.split(joined, 2, axis=1)[0 if which == "gate_proj" else 1]


def logits(theirs: transformers.PreTrainedModel, tokens: np.ndarray, **kw) -> np.ndarray:
  """transformers' logits, float32 [batch, time, vocab]."""
  kw = {name: torch.as_tensor(np.asarray(value)) for name, value in kw.items()}
  with torch.no_grad():
    return theirs(input_ids=torch.as_tensor(np.asarray(tokens)), **kw).logits.numpy()
