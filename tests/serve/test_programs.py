"""Compiles are counted, and the compute dtype is a measured choice."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models.create import tiny_llama
from clawgym_jax.serve import precision
from clawgym_jax.serve.programs import Programs


def test_a_compile_after_warm_up_is_counted():
  model = tiny_llama(300)
  programs = Programs(
      model.config, jnp.float32, slots=1, max_len=32, steps=1, prefill_shapes=[(1, 8)]
  )
  params = programs.convert(nnx.state(model, nnx.Param))
  programs.warm_up(params)
  assert programs.recompiles == 0
  jax.jit(lambda x: x * 3 + 1)(jnp.zeros(7, jnp.int8))
  assert programs.recompiles > 0


def test_auto_takes_the_faster_type_and_says_why():
  config = tiny_llama(300).config
  dtype, reason = precision.choose("auto", config, 4)
  assert dtype in (jnp.float32, jnp.bfloat16)
  assert dtype.name in reason and "float32" in reason and " us" in reason
  assert precision.choose("bfloat16", config, 4)[0] == jnp.bfloat16
  with pytest.raises(UserError, match="float16"):
    precision.choose("float16", config, 4)
