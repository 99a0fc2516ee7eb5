"""The decoders: cache, serving copy and remat compute what the plain pass does."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from clawgym_jax import parallel
from clawgym_jax.models import CausalLM, create
from clawgym_jax.models.cache import init_cache
from clawgym_jax.models.logprobs import token_logprobs, token_scores

BATCH, TIME, VOCAB = 3, 12, 97
TOKENS = jax.random.randint(jax.random.key(0), (BATCH, TIME), 0, VOCAB)
POSITIONS = jnp.broadcast_to(jnp.arange(TIME), (BATCH, TIME))
WHOLE = jnp.full((BATCH, TIME), TIME)


@nnx.jit
def hidden_of(model, tokens, positions, end):
  return model(tokens, positions, end=end)[0]


def _families_and_types():
  for family in create.TINY:
    yield pytest.param(family, "float32", 1e-5)
    marks = [] if family == "qwen3" else [pytest.mark.slow]
    yield pytest.param(family, "bfloat16", 3e-2, marks=marks)


@pytest.mark.parametrize("family,dtype,atol", _families_and_types())
def test_prefill_and_decode_are_the_plain_pass(family, dtype, atol):
  if family == "gemma3_text" and dtype == "bfloat16":
    atol *= 2  # its norms after attention and MLP magnify what is rounded there
  model = create.tiny(family, VOCAB, compute_dtype=dtype)
  expected = hidden_of(model, TOKENS, POSITIONS, WHOLE)
  serving = create.serving_copy(model, dtype)
  graphdef, params = nnx.split(serving)
  length = 20
  cache = init_cache(model.config, BATCH + 1, length, dtype)

  @partial(jax.jit, donate_argnums=1)
  def run(params, cache, tokens, positions, rows):
    model = nnx.merge(graphdef, params)
    return model(tokens, positions, cache=cache, rows=rows)

  # Prompts of unequal length into rows in another order, padded at the right.
  rows = jnp.asarray([2, 0, 3])
  lengths = np.asarray([7, 4, 6])
  padded = jnp.where(jnp.arange(8) < lengths[:, None], POSITIONS[:, :8], length - 1)
  hidden, cache = run(params, cache, TOKENS[:, :8], padded, rows)
  for row, count in enumerate(lengths):
    np.testing.assert_allclose(
        hidden[row, :count], expected[row, :count], atol=atol, rtol=atol
    )
  # Then one token each, from where each prompt ended.
  at = lengths.copy()
  for _ in range(4):
    take = np.arange(BATCH)[:, None], at[:, None]
    hidden, cache = run(params, cache, TOKENS[take], POSITIONS[take], rows)
    np.testing.assert_allclose(hidden, expected[take], atol=atol, rtol=atol)
    at += 1


def test_the_cache_is_updated_in_place():
  model = create.serving_copy(create.tiny("qwen3", VOCAB), jnp.float32)
  graphdef, params = nnx.split(model)
  cache = init_cache(model.config, BATCH, 4096, jnp.float32)
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(cache))

  @partial(jax.jit, donate_argnums=1)
  def decode(params, cache, tokens, positions):
    return nnx.merge(graphdef, params)(tokens, positions, cache=cache)

  token = TOKENS[:, :1]
  memory = decode.lower(params, cache, token, token).compile().memory_analysis()
  assert memory.alias_size_in_bytes >= size
  assert memory.temp_size_in_bytes < size / 2


@pytest.mark.parametrize("family", create.TINY)
def test_a_branch_is_its_own_path(family):
  model = create.tiny(family, VOCAB)
  # 4 shared tokens, then branches of 3 and 5, laid out in pre-order.
  end = jnp.broadcast_to(jnp.asarray([12] * 4 + [7] * 3 + [12] * 5), TOKENS.shape)
  positions = jnp.asarray([0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8])
  positions = jnp.broadcast_to(positions, TOKENS.shape)
  tree = hidden_of(model, TOKENS, positions, end)
  path = np.asarray([0, 1, 2, 3, 7, 8, 9, 10, 11])
  alone = jnp.pad(TOKENS[:, path], ((0, 0), (0, 3)))  # seen by nothing before them
  alone = hidden_of(model, alone, POSITIONS, WHOLE)
  np.testing.assert_allclose(tree[:, path], alone[:, :9], atol=1e-5)


@pytest.mark.parametrize(
    "ways",
    [
        [("full", True), ("dots", False)],
        pytest.param([("dots", True), ("none", False)], marks=pytest.mark.slow),
    ],
)
def test_remat_and_scan_change_no_gradient(ways):
  model = create.tiny("llama", VOCAB)
  stacked = nnx.state(model, nnx.Param)

  def gradient(remat, scan):
    graphdef = nnx.split(
        nnx.eval_shape(
            lambda: CausalLM(
                model.config, rngs=nnx.Rngs(0), remat=remat, scan_layers=scan
            )
        )
    )[0]
    params = stacked if scan else create.serving_params(stacked, "float32")

    @jax.jit
    @jax.grad
    def loss(params):
      model = nnx.merge(graphdef, params)
      hidden, _ = model(TOKENS, POSITIONS)
      flat = hidden[:, :-1].reshape(-1, hidden.shape[-1])
      return token_logprobs(model, flat, TOKENS[:, 1:].reshape(-1), chunk=8).sum()

    return loss(params)["model"]["embed_tokens"]["weight"][...]

  plain = gradient("none", True)
  for how in ways:
    np.testing.assert_allclose(
        gradient(*how), plain, atol=2e-4, rtol=1e-4, err_msg=str(how)
    )


@pytest.mark.parametrize(
    "family", [pytest.param("gemma3_text", marks=pytest.mark.slow), "qwen3_moe"]
)
def test_a_loop_over_the_layers_is_the_unrolled_one(family, monkeypatch):
  """The loop is what accelerators run."""

  def gradient():
    graphdef, params = nnx.split(create.tiny(family, VOCAB, remat="full"))

    def loss(params):
      hidden, _ = nnx.merge(graphdef, params)(TOKENS, POSITIONS)
      return jnp.sum(jnp.sin(hidden))

    return jax.jit(jax.value_and_grad(loss)).lower(params).compile()(params)

  expected = gradient()
  monkeypatch.setattr(parallel, "platform", lambda: "tpu")
  for a, b in zip(jax.tree.leaves(gradient()), jax.tree.leaves(expected)):
    np.testing.assert_allclose(a, b, atol=2e-5 * max(1.0, float(jnp.max(jnp.abs(b)))))


@pytest.mark.parametrize("family,temperature", [("qwen3", 1.0), ("llama", 0.7)])
def test_chunked_log_probs(family, temperature):
  """With the embeddings as the head, and with a head of its own."""
  model = create.tiny(family, VOCAB)
  graphdef, params = nnx.split(model)
  hidden = jax.random.normal(jax.random.key(2), (13, model.config.hidden_size))
  targets = TOKENS.reshape(-1)[:13]
  weights = jax.random.normal(jax.random.key(3), (13,))

  def ours(params, hidden):
    scores = token_scores(
        nnx.merge(graphdef, params), hidden, targets, temperature, chunk=4
    )
    value = jnp.vdot(scores.logprobs + 0.1 * scores.logsumexps**2, weights)
    return value, tuple(scores)

  def plain(params, hidden):
    logits = nnx.merge(graphdef, params).logits(hidden) / temperature
    logs = jax.nn.log_softmax(logits)
    scores = logs[jnp.arange(13), targets]
    spread, total = -jnp.sum(jnp.exp(logs) * logs, -1), jax.nn.logsumexp(logits, -1)
    return jnp.vdot(scores + 0.1 * total**2, weights), (scores, spread, total)

  (grads, values) = jax.jit(jax.grad(ours, (0, 1), has_aux=True))(params, hidden)
  (expected, want) = jax.jit(jax.grad(plain, (0, 1), has_aux=True))(params, hidden)
  for a, b in zip(values, want):
    np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5)
  for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(expected)):
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_bfloat16_products_add_up_in_float32():
  model = create.tiny("qwen3", VOCAB)
  half = create.tiny("qwen3", VOCAB, compute_dtype="bfloat16")
  a, b = (hidden_of(m, TOKENS, POSITIONS, WHOLE) for m in (model, half))
  assert b.dtype == jnp.float32
  assert 0 < float(jnp.abs(a - b).max()) < 0.05
