"""On 8 simulated devices the parameters are split, and what is computed is the same.

Rows of a batch are plain, padded at either side and packed; a decode step reads
a cache that rows of unequal length filled.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import CausalLM, create
from clawgym_jax.models.cache import init_cache
from clawgym_jax.models.fingerprint import fingerprint
from clawgym_jax.models.layers.lora import LoraConfig
from clawgym_jax.models.logprobs import token_logprobs
from clawgym_jax.parallel import BATCH, make_mesh
from tests import eight_devices
from tests.models.test_experts import accelerator

VOCAB, TIME = 96, 16
SAMPLES = [[(0, TIME)], [(0, 9)], [(5, TIME)], [(0, 4), (4, 11), (11, TIME)]]
"""The samples of each row, [start, stop); what is between them is padding."""
TOKENS = np.random.default_rng(0).integers(0, VOCAB, (len(SAMPLES), TIME))
LENGTHS = np.asarray([8, 3, 6, 1])
"""Of the prompts that a cache is filled with."""
LORA = LoraConfig(rank=4, alpha=8, targets=("q_proj", "o_proj"))
HALF = {"compute_dtype": "bfloat16"}
MOE_MESH = {"fsdp": 2, "expert": 2, "tensor": 2}
MOE = {"lora": LORA, "remat": "full"}
CASES = {
    "llama": ("llama", {"data": 4, "tensor": 2}, {}),
    "qwen2": ("qwen2", {"fsdp": 4, "tensor": 2}, {"lora": LORA}),
    "qwen3": ("qwen3", {"data": 2, "fsdp": 2, "tensor": 2}, {}),
    "qwen3, bfloat16": ("qwen3", {"data": 2, "fsdp": 2, "tensor": 2}, HALF),
    "gemma3": ("gemma3_text", {"fsdp": 2, "context": 2, "tensor": 2}, {}),
    "qwen3, context": ("qwen3", {"data": 2, "context": 4}, {"remat": "full"}),
    "qwen3_moe, context": ("qwen3_moe", {"expert": 2, "context": 4}, {}),
    "qwen3_moe": ("qwen3_moe", MOE_MESH, MOE),
    "qwen3_moe, bfloat16": ("qwen3_moe", MOE_MESH, HALF),
    "qwen3_moe, tokamax": ("qwen3_moe", MOE_MESH, MOE),
}
"""Family, mesh and how the model is built."""
QUICK = {"qwen3_moe", "qwen3, context"}  # compiling is what takes the time
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


def build(family, kw):
  """A model whose adapters, if any, change something, as do a row's other tokens."""
  config = create.tiny_config(family, VOCAB)
  if config.num_experts is not None:
    config = replace(config, num_hidden_layers=1)  # their sorts compile slowly
  model = CausalLM(config, rngs=nnx.Rngs(0), **kw)
  for path, value in nnx.to_flat_state(nnx.state(model, nnx.Param)):
    if "lora_B" in path:
      keys = jax.random.key(len(path))
      value[...] = value[...] + 0.1 * jax.random.normal(keys, value.shape)
    elif "self_attn" in path and path[-2].endswith("proj"):
      value[...] = 5 * value[...]
  return model


def rows() -> tuple[np.ndarray, np.ndarray]:
  """Positions and ends of SAMPLES, [rows, TIME]; padding sees itself alone."""
  positions = np.zeros_like(TOKENS)
  end = np.broadcast_to(np.arange(TIME) + 1, TOKENS.shape).copy()
  for row, samples in enumerate(SAMPLES):
    for start, stop in samples:
      positions[row, start:stop] = np.arange(stop - start)
      end[row, start:stop] = stop
  return positions, end


def step(model):
  """Gradient of the mean log-prob of tokens, and the logits."""
  graphdef, params = nnx.split(model)

  @jax.jit
  def run(params, tokens, positions, end):
    def loss(params):
      model = nnx.merge(graphdef, params)
      hidden, _ = model(tokens, positions, end=end)
      flat = hidden[:, :-1].reshape(-1, hidden.shape[-1])
      scores = token_logprobs(model, flat, tokens[:, 1:].reshape(-1))
      return scores.mean(), model.logits(hidden)

    return jax.grad(loss, has_aux=True)(params)

  return run, params


def decode(model) -> jax.Array:
  """Logits of one token more for each prompt, from a cache of more rows than that."""
  config, dtype, lora = model.config, model.compute_dtype, model.lora
  graphdef = create.serving_graphdef(config, dtype)
  length = LENGTHS.max() + 2
  at = np.arange(LENGTHS.max())
  positions = np.where(at < LENGTHS[:, None], at, length - 1)
  places = {"rows": jnp.asarray([3, 0, 4, 1])}

  @jax.jit
  def run(params, tokens):
    model = nnx.merge(graphdef, create.serving_params(params, dtype, lora))
    cache = init_cache(config, 5, length, dtype)
    _, cache = model(tokens[:, :-1], positions, cache=cache, **places)
    hidden, _ = model(tokens[:, -1:], LENGTHS[:, None], cache=cache, **places)
    return model.logits(hidden)

  return run(nnx.state(model, nnx.Param), TOKENS[:, : len(at) + 1])


def on_eight_devices(case: str) -> None:
  family, axes, kw = CASES[case]
  model = build(family, kw)
  run, params = step(model)
  grads, logits = run(params, TOKENS, *rows())
  decoded = decode(model)
  atol = 2e-2 if "bfloat16" in case else 1e-5
  # A packed row would show it if its samples saw each other.
  plain = np.broadcast_to(np.arange(TIME), TOKENS.shape), np.full(TOKENS.shape, TIME)
  _, causal = run(params, TOKENS, *plain)
  assert np.max(np.abs(causal[3] - logits[3])) > 10 * atol
  mesh = make_mesh(**axes)
  kernels = accelerator() if "tokamax" in case else contextlib.nullcontext()
  with jax.set_mesh(mesh), kernels:
    model = build(family, kw)
    run, split = step(model)
    assert fingerprint(split) == fingerprint(params)
    inputs = jax.device_put((TOKENS, *rows()), jax.NamedSharding(mesh, BATCH))
    # One program with collectives at a time: two can starve each other of threads.
    split_grads, split_logits = jax.block_until_ready(run(split, *inputs))
    split_decoded = jax.block_until_ready(decode(model))
    found = check_layout(split, split_grads, mesh)
    own = {"qwen2": 2, "qwen3_moe": 2}.get(family, 1)
    assert len(found) == own + (4 if model.lora else 0), found
    if model.lora is not None:
      merged = nnx.state(create.merged(model), nnx.Param)
      assert len(check_layout(merged, split_grads, mesh)) == len(found) - 4
  np.testing.assert_allclose(split_logits, logits, atol=atol)
  np.testing.assert_allclose(split_decoded, decoded, atol=atol)
  for a, b in zip(jax.tree.leaves(split_grads), jax.tree.leaves(grads)):
    np.testing.assert_allclose(a, b, atol=atol)


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


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(CASES.keys() - QUICK, id="rest", marks=pytest.mark.slow),
    ],
)
def test_eight_devices_compute_the_same(cases):
  found = eight_devices.failures(on_eight_devices, {case: [case] for case in cases})
  assert found.keys() == set(cases)
  assert not any(found.values()), "\n".join(found.values())


def test_a_mesh_that_does_not_fit_is_refused():
  with pytest.raises(UserError, match="needs 3 devices"):
    make_mesh(tensor=3, devices=jax.devices()[:1])


def test_weights_that_can_not_be_split_are_refused():
  mesh = jax.sharding.AbstractMesh(
      (1, 5, 1, 1, 1), ("data", "fsdp", "expert", "context", "tensor")
  )
  with jax.sharding.use_abstract_mesh(mesh):
    with pytest.raises(UserError, match="a divisor of 64 for mesh.fsdp"):
      nnx.eval_shape(lambda: create.tiny("qwen3", VOCAB))


def test_experts_that_can_not_be_split_are_refused():
  mesh = jax.sharding.AbstractMesh(
      (1, 1, 3, 1, 1), ("data", "fsdp", "expert", "context", "tensor")
  )
  with jax.sharding.use_abstract_mesh(mesh):
    with pytest.raises(UserError, match="8 experts"):
      nnx.eval_shape(lambda: create.tiny("qwen3_moe", VOCAB))
