"""Adapters start as nothing, train alone, and merge into what they computed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import create
from clawgym_jax.models.layers.lora import TARGETS, LoraConfig

VOCAB = 97
TOKENS = jax.random.randint(jax.random.key(0), (2, 12), 0, VOCAB)
POSITIONS = jnp.broadcast_to(jnp.arange(12), TOKENS.shape)
ATTENTION = LoraConfig(rank=4, alpha=8, targets=("q_proj", "v_proj"))
EVERYWHERE = LoraConfig(rank=3, alpha=5, targets=TARGETS)
ADAPTED = {
    "llama": EVERYWHERE,
    "qwen2": EVERYWHERE,
    "gemma3_text": EVERYWHERE,
    "qwen3_moe": ATTENTION,
}


@nnx.jit
def hidden_of(model):
  return model(TOKENS, POSITIONS)[0]


def randomised(model):
  """B drawn at random in place of zeros."""
  state = nnx.state(model, nnx.LoRAParam)
  keys = iter(jax.random.split(jax.random.key(1), 99))
  nnx.update(
      model,
      jax.tree.map(lambda v: jax.random.normal(next(keys), v.shape) * 0.1, state),
  )
  return model


# A dense family and the one with experts always; the others in make test-all.
FAMILIES = [
    name if name in ("llama", "qwen3_moe") else pytest.param(name, marks=pytest.mark.slow)
    for name in ADAPTED
]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fresh_adapter_changes_nothing(family):
  model = create.tiny(family, VOCAB, lora=ADAPTED[family])
  base = create.tiny(family, VOCAB)
  adapters, rest = nnx.split(model, nnx.LoRAParam, nnx.Param)[1:]
  expected = nnx.state(base, nnx.Param)
  assert jax.tree.structure(nnx.to_pure_dict(rest)) == jax.tree.structure(
      nnx.to_pure_dict(expected)
  )
  for got, want in zip(jax.tree.leaves(rest), jax.tree.leaves(expected)):
    np.testing.assert_array_equal(got, want)
  np.testing.assert_array_equal(hidden_of(model), hidden_of(base))
  for path, value in nnx.to_flat_state(adapters):
    assert isinstance(value, nnx.LoRAParam)
    assert (np.abs(value[...]).max() == 0) == ("lora_B" in path)


def test_paths_and_shapes():
  model = create.tiny("llama", VOCAB, lora=EVERYWHERE)
  shapes = {
      ".".join(path): value.shape
      for path, value in nnx.to_flat_state(nnx.state(model, nnx.LoRAParam))
  }
  assert len(shapes) == 2 * len(TARGETS)
  prefix = "model.layers.mlp.down_proj"
  assert shapes[f"{prefix}.lora_A.weight"] == (3, 3, 96)  # [layers, rank, in]
  assert shapes[f"{prefix}.lora_B.weight"] == (3, 48, 3)  # [layers, out, rank]


@pytest.mark.parametrize("scan", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_only_adapters_get_a_gradient(scan):
  model = create.tiny("llama", VOCAB, lora=ATTENTION, scan_layers=scan, remat="full")
  graphdef, adapters, rest = nnx.split(model, nnx.LoRAParam, nnx.Param)

  def loss(adapters, rest):
    hidden, _ = nnx.merge(graphdef, adapters, rest)(TOKENS, POSITIONS)
    return jnp.sum(jnp.sin(hidden))

  def compiled(which):
    return jax.jit(jax.grad(loss, which)).lower(adapters, rest).compile()

  gradient, both = compiled(0), compiled((0, 1))
  grads = gradient(adapters, rest)
  assert jax.tree.structure(grads) == jax.tree.structure(adapters)
  for path, value in nnx.to_flat_state(grads):
    # B is zero, so A gets none yet.
    assert (np.abs(value[...]).max() > 0) == ("lora_B" in path), path
  work = [f.cost_analysis()["flops"] for f in (gradient, both)]
  assert work[0] < 0.85 * work[1]  # no product for the weights that stay


@pytest.mark.parametrize("family", FAMILIES)
def test_merged_is_the_same_model(family):
  model = create.tiny(family, VOCAB, lora=ADAPTED[family])
  fresh = hidden_of(model)
  expected = hidden_of(randomised(model))
  assert float(jnp.max(jnp.abs(expected - fresh))) > 0.05
  plain = create.merged(model)
  assert plain.lora is None and not jax.tree.leaves(nnx.state(plain, nnx.LoRAParam))
  np.testing.assert_allclose(hidden_of(plain), expected, atol=2e-5)


def test_a_serving_copy_is_merged():
  model = randomised(create.tiny("llama", VOCAB, lora=ATTENTION))
  serving = create.serving_copy(model, jnp.float32)
  assert not jax.tree.leaves(nnx.state(serving, nnx.LoRAParam))
  np.testing.assert_allclose(hidden_of(serving), hidden_of(model), atol=2e-5)
  with pytest.raises(ValueError, match="adapters"):
    create.serving_params(nnx.state(model, nnx.Param), jnp.float32)


def test_merged_leaves_a_plain_model():
  model = create.tiny("llama", VOCAB)
  assert create.merged(model) is model


@pytest.mark.parametrize(
    "change,named",
    [
        ({"rank": 0}, "rank 0"),
        ({"alpha": 0.0}, "alpha"),
        ({"targets": ()}, "nothing"),
        ({"targets": ("q_proj", "lm_head")}, "lm_head"),
    ],
)
def test_refusals(change, named):
  values = {"rank": 4, "alpha": 8.0, "targets": ("q_proj",)}
  with pytest.raises(UserError, match=named):
    LoraConfig(**values | change)


def test_experts_are_no_targets():
  lora = LoraConfig(rank=2, alpha=2, targets=("q_proj", "down_proj"))
  with pytest.raises(UserError, match="down_proj.*experts"):
    create.tiny("qwen3_moe", VOCAB, lora=lora)
