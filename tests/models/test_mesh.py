"""On 8 simulated devices the parameters are split, logits and gradients the same."""

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
from clawgym_jax.models.layers.lora import LoraConfig
from clawgym_jax.models.logprobs import token_logprobs
from clawgym_jax.parallel import BATCH, make_mesh

TOKENS = np.random.default_rng(0).integers(0, 96, (4, 16))
LORA = LoraConfig(rank=4, alpha=8, targets=("q_proj", "o_proj"))
CASES = {
    "qwen3": (create.tiny_qwen3, {"data": 2, "fsdp": 2, "tensor": 2}, {}),
    "qwen2": (create.tiny_qwen2, {"fsdp": 4, "tensor": 2}, {"lora": LORA}),
    "gemma3": (create.tiny_gemma3, {"fsdp": 2, "context": 2, "tensor": 2}, {}),
    "qwen3_moe": (
        create.tiny_qwen3_moe,
        {"fsdp": 2, "expert": 2, "tensor": 2},
        {"lora": LORA, "remat": "full"},
    ),
}
"""Builder, mesh and how it is built."""
SPECS = {
    "mlp.gate_proj.weight": jax.P(None, "tensor", "fsdp"),
    "mlp.experts.gate_proj.weight": jax.P(None, "expert", "tensor", "fsdp"),
    "mlp.experts.down_proj.weight": jax.P(None, "expert", "fsdp", "tensor"),
    "self_attn.q_proj.bias": jax.P(None, "tensor"),
    "self_attn.q_proj.lora_A.weight": jax.P(None, None, "fsdp"),
    "self_attn.q_proj.lora_B.weight": jax.P(None, "tensor", None),
    "self_attn.o_proj.lora_A.weight": jax.P(None, None, "tensor"),
    "self_attn.o_proj.lora_B.weight": jax.P(None, "fsdp", None),
}


def build(make, **kw):
  """A model whose adapters, if any, change something."""
  model = make(96, **kw)
  for path, value in nnx.to_flat_state(nnx.state(model, nnx.LoRAParam)):
    if "lora_B" in path:
      keys = jax.random.key(len(path))
      value[...] = value[...] + 0.1 * jax.random.normal(keys, value.shape)
  return model


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


def on_eight_devices(case: str, dtype: str) -> None:
  """Runs in a process of its own; fails by exception."""
  assert jax.device_count() == 8
  make, axes, kw = CASES[case]
  kw = {"compute_dtype": dtype, **kw}
  run, params = step(build(make, **kw))
  grads, logits = run(params, jnp.asarray(TOKENS))
  mesh = make_mesh(**axes)
  with jax.set_mesh(mesh):
    model = build(make, **kw)
    run, split = step(model)
    assert fingerprint(split) == fingerprint(params)
    tokens = jax.device_put(TOKENS, jax.NamedSharding(mesh, BATCH))
    split_grads, split_logits = run(split, tokens)
    found = check_layout(split, split_grads, mesh)
    assert len(found) == {"qwen2": 6, "qwen3_moe": 6}.get(case, 1), found
    if model.lora is not None:
      merged = nnx.state(create.merged(model), nnx.Param)
      assert len(check_layout(merged, split_grads, mesh)) == len(found) - 4
  atol = 1e-5 if dtype == "float32" else 2e-2
  np.testing.assert_allclose(split_logits, logits, atol=atol)
  for a, b in zip(jax.tree.leaves(split_grads), jax.tree.leaves(grads)):
    np.testing.assert_allclose(a, b, atol=atol)
  print("logits", float(np.max(np.abs(np.asarray(split_logits) - np.asarray(logits)))))


def check_layout(params, grads, mesh) -> list[str]:
  """Names of SPECS found; each lies as it says, and a base weight's gradient too.

  Those of adapters lie where the trainer's `out_shardings` put them.
  """
  grads = {path: value[...] for path, value in nnx.to_flat_state(grads)}
  found = []
  for path, value in nnx.to_flat_state(params):
    name = ".".join(path).removeprefix("model.layers.")
    if name in SPECS:
      found.append(name)
      wanted = jax.NamedSharding(mesh, SPECS[name])
      assert value[...].sharding.is_equivalent_to(wanted, value.ndim), name
      if "lora" not in name:
        assert grads[path].sharding.is_equivalent_to(wanted, value.ndim), name
      parts = np.prod([mesh.shape[axis] for axis in SPECS[name] if axis])
      assert value[...].addressable_shards[0].data.size * parts == value.size
  return found


@pytest.mark.parametrize(
    "case,dtype",
    [(case, "float32") for case in CASES] + [("qwen3", "bfloat16"), ("qwen3_moe", "bfloat16")],
)
def test_eight_devices_compute_the_same(case, dtype):
  code = f"from tests.models.test_mesh import *; on_eight_devices({case!r}, {dtype!r})"
  flags = "--xla_force_host_platform_device_count=8"
  done = subprocess.run(
      [sys.executable, "-c", code],
      env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
      capture_output=True,
      text=True,
      timeout=240,
  )
  print(done.stdout)
  assert done.returncode == 0, done.stderr[-3000:]


def test_a_mesh_that_does_not_fit_is_refused():
  with pytest.raises(UserError, match="needs 3 devices"):
    make_mesh(tensor=3, devices=jax.devices()[:1])


def test_experts_that_can_not_be_split_are_refused():
  mesh = jax.sharding.AbstractMesh(
      (1, 1, 3, 1, 1), ("data", "fsdp", "expert", "context", "tensor")
  )
  with jax.sharding.use_abstract_mesh(mesh):
    with pytest.raises(UserError, match="8 experts"):
      nnx.eval_shape(lambda: create.tiny_qwen3_moe(96))
