"""The draw follows the distribution whose log-probs it reports."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clawgym_jax.serve.sampling import sample

VOCAB = 700  # not a multiple of the lanes


def draw(logits, *, temperature=1.0, top_p=1.0, seed=0, position=0):
  rows = logits.shape[0]
  keys = np.zeros((rows, 2), np.uint32)
  keys[:, 1] = np.arange(rows) if seed is None else seed
  return jax.device_get(
      jax.jit(sample)(
          jnp.asarray(logits, jnp.float32),
          jnp.asarray(keys),
          jnp.full(rows, position, jnp.int32),
          jnp.full(rows, temperature, jnp.float32),
          jnp.full(rows, top_p, jnp.float32),
      )
  )


def reference(logits, temperature, top_p):
  """Float64 log-probs of the tempered nucleus."""
  scores = logits.astype(np.float64) / temperature
  probs = np.exp(scores - scores.max())
  probs /= probs.sum()
  order = np.argsort(-probs)
  size = int(np.searchsorted(np.cumsum(probs[order]), top_p)) + 1
  kept = np.zeros(VOCAB, bool)
  kept[order[:size]] = True
  with np.errstate(divide="ignore"):
    return np.log(np.where(kept, probs, 0) / probs[kept].sum())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 1.0])
def test_draws_and_logprobs_follow_the_nucleus(temperature, top_p):
  logits = np.random.default_rng(1).normal(0, 3, VOCAB).astype(np.float32)
  rows = 4000
  tokens, logprobs, untempered = draw(
      np.tile(logits, (rows, 1)), temperature=temperature, top_p=top_p, seed=None
  )
  wanted = reference(logits, temperature, top_p)
  np.testing.assert_allclose(logprobs, wanted[tokens], atol=1e-5)
  np.testing.assert_allclose(untempered, reference(logits, 1, 1)[tokens], atol=1e-5)
  expected = np.exp(wanted) * rows
  counts = np.bincount(tokens, minlength=VOCAB)
  assert not counts[expected == 0].any()
  common = expected > 4
  chi = ((counts - expected) ** 2 / np.maximum(expected, 1e-9))[common].sum()
  freedom = common.sum()
  assert chi < freedom + 5 * np.sqrt(2 * freedom)


def test_greedy_takes_the_maximum_with_log_prob_zero():
  logits = np.random.default_rng(2).normal(0, 1, (8, VOCAB))
  tokens, logprobs, untempered = draw(logits, temperature=0.0, top_p=0.5)
  np.testing.assert_array_equal(tokens, logits.argmax(axis=1))
  assert not logprobs.any()
  assert (untempered < 0).all()


def test_a_row_draws_the_same_in_any_company():
  logits = np.random.default_rng(3).normal(0, 1, (8, VOCAB))
  together = draw(logits, seed=None, position=7)
  for row in (0, 5):
    keys = np.array([[0, row]], np.uint32)
    alone = jax.device_get(sample(
        jnp.asarray(logits[row : row + 1], jnp.float32),
        jnp.asarray(keys),
        jnp.array([7], jnp.int32),
        jnp.ones(1),
        jnp.ones(1),
    ))
    assert alone[0][0] == together[0][row]


def test_positions_and_seeds_change_the_draw():
  logits = np.zeros((1, VOCAB))
  drawn = {int(draw(logits, seed=s, position=p)[0][0]) for s in range(4) for p in range(4)}
  assert len(drawn) > 10


def test_one_certain_token():
  logits = np.full((4, VOCAB), -1e30)
  logits[:, 699] = 0.0
  for top_p in (1e-6, 1.0):
    tokens, logprobs, _ = draw(logits, top_p=top_p)
    assert (tokens == 699).all() and not logprobs.any()
