"""Every family computes what transformers does: <= 1e-4 in float32."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.models import create
from clawgym_jax.models.cache import init_cache
from clawgym_jax.models.logprobs import token_logprobs
from tests.models import peer

torch = pytest.importorskip("torch")

TIME = 24
TOKENS = np.random.default_rng(1).integers(1, peer.VOCAB, (3, TIME))
LENGTHS = np.asarray([24, 9, 15])


@pytest.fixture(scope="module", params=peer.FAMILIES)
def both(request):
  return peer.pair(peer.FAMILIES[request.param])


@nnx.jit
def logits_of(model, tokens, positions, end):
  return model.logits(model(tokens, positions, end=end)[0])


def plain(model):
  """Logits of TOKENS under plain causal attention."""
  positions = jnp.broadcast_to(jnp.arange(TIME), TOKENS.shape)
  return logits_of(model, TOKENS, positions, jnp.full(TOKENS.shape, TIME))


def close(ours, theirs, what: str, limit: float = 1e-4) -> None:
  difference = float(np.max(np.abs(np.asarray(ours) - theirs)))
  print(f"{what}: {difference:.1e} of {float(np.max(np.abs(theirs))):.1e}")
  assert difference <= limit, what


@pytest.mark.parametrize("name", peer.SCALED)
def test_longer_than_trained_on(name):
  theirs, ours = peer.pair(peer.SCALED[name])
  expected = peer.logits(theirs, TOKENS)
  close(plain(ours), expected, name)
  unscaled = peer.reference(dataclasses.replace(ours.config, rope_scaling=None))
  assert np.max(np.abs(peer.logits(unscaled, TOKENS) - expected)) > 0.05  # it matters


def test_shares_that_do_not_add_up_to_one():
  config = dataclasses.replace(peer.FAMILIES["qwen3_moe"], norm_topk_prob=False)
  theirs, ours = peer.pair(config)
  close(plain(ours), peer.logits(theirs, TOKENS), "raw shares")


@pytest.mark.parametrize("side", ["right", "left"])
def test_padded(both, side):
  theirs, ours = both
  real = np.arange(TIME) < LENGTHS[:, None]
  stop = LENGTHS[:, None]
  if side == "left":
    real, stop = real[:, ::-1], np.full((3, 1), TIME)
  positions = np.maximum(np.cumsum(real, axis=1) - 1, 0)
  # A pad token is seen by itself alone.
  end = np.where(real, stop, np.arange(TIME) + 1)
  expected = peer.logits(
      theirs, TOKENS, attention_mask=real.astype(np.int64), position_ids=positions
  )
  got = logits_of(ours, TOKENS, positions, end)
  close(got[real], expected[real], f"padded at the {side}")


def test_packed(both):
  theirs, ours = both
  cuts = [(0, 7), (7, 19), (19, TIME)]
  positions = np.concatenate([np.arange(stop - start) for start, stop in cuts])
  end = np.concatenate([np.full(stop - start, stop) for start, stop in cuts])
  rows = (np.broadcast_to(x, TOKENS.shape) for x in (positions, end))
  got = logits_of(ours, TOKENS, *rows)
  for start, stop in cuts:
    alone = peer.logits(theirs, TOKENS[:, start:stop])
    close(got[:, start:stop], alone, f"packed from {start}")


def test_cached_decode(both):
  theirs, ours = both
  steps, lengths, width = 8, np.asarray([16, 5, 11]), 16
  left = np.arange(width) >= width - lengths[:, None]
  prompts = np.zeros(left.shape, int)
  for row, length in enumerate(lengths):
    prompts[row, width - length :] = TOKENS[row, :length]
  with torch.no_grad():
    out = theirs.generate(
        torch.as_tensor(prompts),
        attention_mask=torch.as_tensor(left.astype(np.int64)),
        max_new_tokens=steps,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
  sampled = out.sequences.numpy()[:, width:]
  serving = create.serving_copy(ours, jnp.float32)
  graphdef, params = nnx.split(serving)
  length = 32
  cache = init_cache(ours.config, 4, length, jnp.float32)

  @partial(jax.jit, donate_argnums=1)
  def run(params, cache, tokens, positions, rows):
    model = nnx.merge(graphdef, params)
    hidden, cache = model(tokens, positions, cache=cache, rows=rows)
    return model.logits(hidden), cache

  rows = jnp.asarray([2, 0, 3])
  index = np.arange(width)
  positions = np.where(index < lengths[:, None], index, length - 1)
  got, cache = run(params, cache, jnp.asarray(TOKENS[:, :width]), jnp.asarray(positions), rows)
  got = got[np.arange(3), lengths - 1]
  for step in range(steps):
    close(got, out.logits[step].numpy(), f"step {step}")
    got, cache = run(
        params,
        cache,
        jnp.asarray(sampled[:, step : step + 1]),
        jnp.asarray(lengths[:, None] + step),
        rows,
    )
    got = got[:, 0]


def test_gradients(both):
  theirs, ours = both
  theirs.zero_grad()
  tokens = torch.as_tensor(TOKENS)
  scores = torch.log_softmax(theirs(input_ids=tokens).logits[:, :-1], -1)
  torch.gather(scores, 2, tokens[:, 1:, None]).mean().backward()
  tensors = {
      name: value.grad.numpy() for name, value in theirs.named_parameters()
  }
  expected = nnx.state(peer.load(ours.config, tensors), nnx.Param)
  graphdef, params = nnx.split(ours, nnx.Param)

  @jax.jit
  @jax.grad
  def gradient(params):
    model = nnx.merge(graphdef, params)
    positions = jnp.broadcast_to(jnp.arange(TIME), TOKENS.shape)
    hidden = model(jnp.asarray(TOKENS), positions)[0][:, :-1]
    hidden = hidden.reshape(-1, hidden.shape[-1])
    return token_logprobs(model, hidden, jnp.asarray(TOKENS[:, 1:]).reshape(-1)).mean()

  for (path, got), (_, want) in zip(
      nnx.to_flat_state(gradient(params)), nnx.to_flat_state(expected)
  ):
    want = np.asarray(want[...])
    limit = 1e-5 * np.abs(want).max()
    assert limit > 0, path
    close(got[...], want, ".".join(map(str, path)), limit)


def test_layers_one_by_one_are_the_scanned_ones(both):
  _, ours = both
  serving = create.serving_copy(ours, jnp.float32)
  np.testing.assert_allclose(plain(ours), plain(serving), atol=1e-5)
