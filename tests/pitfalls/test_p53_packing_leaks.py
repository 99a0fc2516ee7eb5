"""P53: packed, as a tree and unpacked give the same log-probs and gradients."""

import jax
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.models import create
from clawgym_jax.sft.scores import supervised_loss, trained_scores
from tests.sft import rows


@pytest.fixture(scope="module", params=[create.tiny_qwen3, create.tiny_llama])
def model(request):
  return request.param(rows.VOCAB)


@pytest.fixture(scope="module")
def loss_and_gradient(model):
  graphdef, params = nnx.split(model, nnx.Param)

  @jax.jit
  def run(params, batch):
    return jax.value_and_grad(
        lambda p: supervised_loss(nnx.merge(graphdef, p), batch)[0]
    )(params)

  return lambda batch: run(params, batch)


def test_losses_and_gradients_do_not_depend_on_the_layout(loss_and_gradient):
  made = rows.sequences()
  flat = loss_and_gradient(rows.unpacked(made))
  for share in (False, True):
    loss, gradient = loss_and_gradient(rows.packed(made, share=share))
    np.testing.assert_allclose(loss, flat[0], rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5),
        gradient,
        flat[1],
    )


def test_a_tree_is_smaller_than_its_flat_sequences():
  made = rows.sequences()
  used = lambda batch: (batch["end"] != np.arange(1, 129)).sum()
  assert used(rows.packed(made, share=True)) < used(rows.packed(made, share=False))


def test_no_segment_and_no_branch_sees_another(model):
  made = rows.sequences()
  scores = jax.jit(lambda batch: trained_scores(model, batch).logprobs)
  for share in (False, True):
    batch = rows.packed(made, share=share)
    before = np.asarray(scores(batch))[0]
    changed = {name: value.copy() for name, value in batch.items()}
    first = np.flatnonzero(batch["weight"][0])[:4]  # the first answer's tokens
    where = batch["index"][0][first]
    changed["tokens"][0][where] = (changed["tokens"][0][where] + 1) % rows.VOCAB
    after = np.asarray(scores(changed))[0]
    own = made[0].trained_tokens if share is False else None
    differs = np.flatnonzero(np.abs(after - before) > 1e-6)
    assert len(differs)
    stop = batch["end"][0][where[0]]
    assert (batch["index"][0][differs] < stop).all()
    assert own is None or len(differs) <= own
