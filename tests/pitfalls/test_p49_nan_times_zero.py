"""P49: NaN at a masked position reaches neither the value nor a gradient."""

import jax
import jax.numpy as jnp
import numpy as np

from clawgym_jax.rl import objectives
from clawgym_jax.sft.scores import supervised_loss, trained_scores

SETTINGS = {"clip_low": 0.2, "clip_high": 0.28, "truncated_is": 2.0}


class Head:
  """A model whose hidden states are given; its head is the identity."""

  compute_dtype = jnp.dtype(jnp.float32)

  def __init__(self, hidden):
    self.hidden = hidden

  def head(self):
    return jnp.eye(self.hidden.shape[-1])

  def __call__(self, tokens, positions, *, end):
    return self.hidden, None


def test_policy_loss_and_kl():
  columns = jnp.array([[-1.0, -2.0, np.nan, np.inf], [-0.5, np.nan, -1.0, -3.0]])
  weight = jnp.array([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0]])

  def loss(current, other):
    total, sums = objectives.ppo_clip(
        current, other, other, other, weight, **SETTINGS
    )
    return total + objectives.kl_k3(current, other, weight), sums

  (value, sums), gradient = jax.value_and_grad(loss, has_aux=True)(columns, columns)
  assert np.isfinite(value)
  assert all(np.isfinite(x) for x in sums.values())
  assert np.isfinite(gradient).all()
  assert (gradient[weight == 0] == 0).all()


def test_hidden_states_that_nothing_trains():
  hidden = np.ones((1, 3, 8), np.float32)
  hidden[0, 2] = np.nan
  batch = {
      "tokens": jnp.zeros((1, 3), jnp.int32),
      "positions": jnp.zeros((1, 3), jnp.int32),
      "end": jnp.full((1, 3), 3),
      "before": jnp.array([[0, 2]]),
      "targets": jnp.array([[1, 0]]),
      "weight": jnp.array([[1.0, 0.0]]),
      "share": jnp.array([[1.0, 0.0]]),
  }
  loss = lambda hidden: supervised_loss(Head(hidden), batch)[0]
  value, gradient = jax.value_and_grad(loss)(jnp.asarray(hidden))
  np.testing.assert_allclose(value, np.log(8), rtol=1e-6)
  assert np.isfinite(gradient).all() and (gradient[0, 2] == 0).all()
  assert all(np.isfinite(x).all() for x in trained_scores(Head(hidden), batch))
