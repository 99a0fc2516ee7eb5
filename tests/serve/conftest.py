"""Tiny engines, shared by a module: compiling is what takes the time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.models.create import tiny_llama, tiny_qwen3
from clawgym_jax.models.logprobs import token_logprobs
from clawgym_jax.serve import Engine

VOCAB = 300
SHAPES = dict(
    slots=4,
    max_len=128,
    decode_steps=4,
    prefill_shapes=((1, 8), (2, 8), (2, 32)),
)
FEW_SHAPES = SHAPES | dict(prefill_shapes=((1, 32),))


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def model(request):
  """Weights large enough that the distribution is far from uniform."""
  create = {"llama": tiny_llama, "qwen3": tiny_qwen3}[request.param]
  return sharpened(create(VOCAB))


@pytest.fixture(scope="module")
def engine(model):
  with Engine(model, None, **SHAPES) as engine:
    yield engine
    assert engine.recompiles == 0


def sharpened(model, factor=3.0):
  params = jax.tree.map(
      lambda leaf: leaf * factor if leaf.ndim > 1 else leaf,
      nnx.state(model, nnx.Param),
  )
  nnx.update(model, params)
  return model


def prompt(seed, length):
  return np.random.default_rng(seed).integers(0, VOCAB, length).tolist()


def training_logprobs(model, prompt_ids, ids, temperature=1.0):
  """Log-probs of `ids` after `prompt_ids`, by the training forward."""
  tokens = jnp.asarray([list(prompt_ids) + list(ids)], jnp.int32)
  hidden, _ = model(tokens[:, :-1], jnp.arange(tokens.shape[1] - 1)[None])
  scores = token_logprobs(model, hidden[0], tokens[0, 1:], temperature)
  return np.asarray(scores[len(prompt_ids) - 1 :])
