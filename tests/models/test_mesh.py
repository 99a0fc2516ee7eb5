"""On 8 simulated devices the parameters are split and the logits the same."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import create
from clawgym_jax.models.fingerprint import fingerprint
from clawgym_jax.models.logprobs import token_logprobs
from clawgym_jax.parallel import BATCH, make_mesh

TOKENS = np.random.default_rng(0).integers(0, 96, (4, 16))


def step(model):
  """Gradient of the mean log-prob of TOKENS, and the logits."""
  graphdef, params = nnx.split(model)

  @jax.jit
  def run(params, tokens):
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)

    def loss(params):
      model = nnx.merge(graphdef, params)
      hidden, _ = model(tokens, positions)
      flat = hidden[:, :-1].reshape(-1, hidden.shape[-1])
      scores = token_logprobs(model, flat, tokens[:, 1:].reshape(-1))
      return scores.mean(), model.logits(hidden)

    return jax.grad(loss, has_aux=True)(params)

  return run, params


def on_eight_devices(dtype: str) -> None:
  """Runs in a process of its own; fails by exception."""
  assert jax.device_count() == 8
  run, params = step(create.tiny_qwen3(96, compute_dtype=dtype))
  grads, logits = run(params, jnp.asarray(TOKENS))
  mesh = make_mesh(data=2, fsdp=-1, tensor=2)
  assert mesh.shape["fsdp"] == 2
  with jax.set_mesh(mesh):
    run, split = step(create.tiny_qwen3(96, compute_dtype=dtype))
    assert fingerprint(split) == fingerprint(params)
    weight = split["model"]["layers"]["mlp"]["gate_proj"]["weight"][...]
    assert weight.sharding.spec == jax.P(None, "tensor", "fsdp")
    assert weight.addressable_shards[0].data.shape == (2, 64, 32)
    tokens = jax.device_put(TOKENS, jax.NamedSharding(mesh, BATCH))
    split_grads, split_logits = run(split, tokens)
    assert split_grads["model"]["layers"]["mlp"]["gate_proj"]["weight"][
        ...
    ].sharding.is_equivalent_to(weight.sharding, 3)
  atol = 1e-5 if dtype == "float32" else 2e-2
  np.testing.assert_allclose(split_logits, logits, atol=atol)
  for a, b in zip(jax.tree.leaves(split_grads), jax.tree.leaves(grads)):
    np.testing.assert_allclose(a, b, atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_eight_devices_compute_the_same(dtype):
  code = f"from tests.models.test_mesh import *; on_eight_devices({dtype!r})"
  flags = "--xla_force_host_platform_device_count=8"
  done = subprocess.run(
      [sys.executable, "-c", code],
      env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
      capture_output=True,
      text=True,
      timeout=240,
  )
  assert done.returncode == 0, done.stderr[-3000:]


def test_a_mesh_that_does_not_fit_is_refused():
  with pytest.raises(UserError, match="needs 3 devices"):
    make_mesh(tensor=3, devices=jax.devices()[:1])
