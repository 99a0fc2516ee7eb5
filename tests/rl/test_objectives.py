"""The clipped objective against a loop in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clawgym_jax.rl import objectives

SETTINGS = {"clip_low": 0.2, "clip_high": 0.28, "truncated_is": 2.0}


def columns(seed=0, n=64):
  rng = np.random.default_rng(seed)
  current, old, rollout = (-rng.random((3, n)) * 2).astype(np.float32)
  weight = (rng.random(n) < 0.7).astype(np.float32)
  return current, old, rollout, rng.normal(size=n).astype(np.float32), weight


def test_sum_equals_the_formula_token_by_token():
  current, old, rollout, advantage, weight = columns()
  expected = 0.0
  for c, o, q, a, w in zip(current, old, rollout, advantage, weight):
    r = np.exp(c - o)
    gain = min(r * a, np.clip(r, 0.8, 1.28) * a)
    expected -= w * min(np.exp(o - q), 2.0) * gain
  total, sums = objectives.ppo_clip(current, old, rollout, advantage, weight, **SETTINGS)
  np.testing.assert_allclose(total, expected, rtol=1e-5)
  np.testing.assert_allclose(
      sums["mismatch"], np.sum(weight * np.abs(old - rollout)), rtol=1e-5
  )
  assert 0 < sums["is_truncated"] < weight.sum()


@pytest.mark.parametrize(
    "log_ratio, advantage, moves",
    [(0.5, 1.0, False), (0.5, -1.0, True), (-0.5, 1.0, True), (-0.5, -1.0, False),
     (0.2, 1.0, True), (0.0, 1.0, True)],
)  # fmt: skip
def test_the_clip_stops_only_what_goes_too_far(log_ratio, advantage, moves):
  one = jnp.ones(1)
  gradient, sums = jax.grad(
      lambda current: objectives.ppo_clip(
          current, 0 * one, 0 * one, advantage * one, one, **SETTINGS
      ),
      has_aux=True,
  )(log_ratio * one)
  assert bool(gradient[0] != 0) == moves
  assert bool(sums["clipped"] == 0) == moves


def test_on_policy_gradient_is_reinforce():
  logits = jnp.asarray(np.random.default_rng(0).normal(size=(5, 7)))
  taken = jnp.array([0, 3, 1, 6, 2])
  advantage = jnp.array([1.0, -1.0, 0.5, 2.0, 0.0])
  pick = lambda x: jax.nn.log_softmax(x)[jnp.arange(5), taken]
  old = pick(logits)

  def loss(x):
    return objectives.ppo_clip(pick(x), old, old, advantage, jnp.ones(5), **SETTINGS)[0]

  np.testing.assert_allclose(
      jax.grad(loss)(logits),
      jax.grad(lambda x: -jnp.sum(pick(x) * advantage))(logits),
      rtol=1e-5, atol=1e-6,
  )


def test_correction_off_is_one():
  current, old, rollout, advantage, weight = columns()
  off = {**SETTINGS, "truncated_is": 0.0}
  total, sums = objectives.ppo_clip(current, old, rollout, advantage, weight, **off)
  same, _ = objectives.ppo_clip(current, old, old, advantage, weight, **SETTINGS)
  np.testing.assert_allclose(total, same, rtol=1e-6)
  assert sums["is_truncated"] == 0


def test_k3_is_zero_at_the_reference_and_positive_elsewhere():
  current, reference, _, _, weight = columns()
  assert objectives.kl_k3(current, current, weight) == 0
  assert objectives.kl_k3(current, reference, weight) > 0
