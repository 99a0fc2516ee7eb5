"""Micro-batches, schedules, skipped updates and the time budget."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.configs.base import Optimizer
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import create
from clawgym_jax.sft.budget import Budget
from clawgym_jax.sft.optimizer import learning_rate, transformation
from clawgym_jax.sft.scores import supervised_loss
from clawgym_jax.sft.updates import Watch, Updates
from tests.sft import rows


@pytest.fixture(scope="module")
def parts():
  graphdef, params = nnx.split(create.tiny_qwen3(rows.VOCAB), nnx.Param)
  updates = Updates(graphdef, params, supervised_loss, Optimizer(weight_decay=0.1))
  batch = rows.unpacked(rows.sequences(count=4))
  return updates, params, batch, float(batch["weight"].sum())


def test_micro_batches_give_the_gradient_of_the_whole(parts):
  updates, params, batch, weight = parts
  whole, sums = updates.accumulate(None, params, batch, weight)
  state = None
  for start in (0, 2):
    part = {name: value[start : start + 2] for name, value in batch.items()}
    state = updates.accumulate(state, params, part, weight)
  np.testing.assert_allclose(state[1]["loss"], sums["loss"], rtol=1e-5)
  jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
      state[0], whole,
  )


def test_an_update_that_is_not_usable_changes_nothing(parts):
  updates, params, batch, weight = parts
  grads, _ = updates.accumulate(None, params, batch, weight)
  mine = jax.tree.map(lambda p: p.copy(), params)
  before = jax.tree.map(np.asarray, mine)
  state, usable = updates.initial(mine), jnp.asarray(False)
  mine, _, norm = updates.apply(mine, state, grads, 1e-2, usable)
  assert np.isfinite(norm)
  jax.tree.map(np.testing.assert_array_equal, before, mine)


def test_a_gradient_that_is_not_finite_changes_nothing(parts):
  updates, params, batch, weight = parts
  grads, _ = updates.accumulate(None, params, batch, weight)
  mine = jax.tree.map(lambda p: p.copy(), params)
  before = jax.tree.map(np.asarray, mine)
  state = updates.initial(mine)
  broken = jax.tree.map(lambda g: g * np.nan, grads)
  mine, state, norm = updates.apply(mine, state, broken, 1e-2)
  assert not np.isfinite(norm)
  jax.tree.map(np.testing.assert_array_equal, before, mine)
  mine, state, norm = updates.apply(mine, state, grads, 1e-2)
  assert np.isfinite(norm)
  assert not np.array_equal(
      before["model"]["norm"]["weight"][...], mine["model"]["norm"]["weight"][...]
  )


@pytest.mark.parametrize("name", ["adamw", "muon", "adafactor"])
def test_every_rule_lowers_the_loss(name):
  graphdef, params = nnx.split(create.tiny_qwen3(rows.VOCAB), nnx.Param)
  config = Optimizer(name=name, weight_decay=0.1, clip_norm=100.0)
  updates = Updates(graphdef, params, supervised_loss, config)
  batch = rows.packed(rows.sequences(count=4), share=True)
  weight = float(batch["weight"].sum())
  gate = lambda: np.asarray(params["model"]["layers"]["mlp"]["gate_proj"]["weight"][...])
  first = gate()
  state = updates.initial(params)
  sizes = [leaf.size for leaf in jax.tree.leaves(state)]
  held = sum(sizes) / sum(leaf.size for leaf in jax.tree.leaves(params))
  # Of a model this small Adafactor keeps most of its matrices' moments whole.
  assert {"adamw": 1.99, "muon": 1.0, "adafactor": 0.1}[name] < held < 2.01
  seen = []
  for _ in range(12):
    grads, sums = updates.accumulate(None, params, batch, weight)
    seen.append(float(sums["loss"]) / weight)
    params, state, _ = updates.apply(params, state, grads, 3e-3)
  assert seen[-1] < 0.8 * seen[0], seen
  assert not np.array_equal(first, gate())


def test_muon_moves_a_matrix_alike_in_all_directions():
  """Each layer's matrix apart: singular values of the update are about one size."""
  params = nnx.state(create.tiny_qwen3(rows.VOCAB), nnx.Param)
  rule = transformation(Optimizer(name="muon", clip_norm=1e6))
  keys = iter(jax.random.split(jax.random.key(0), 100))
  grads = jax.tree.map(lambda p: jax.random.normal(next(keys), p.shape), params)
  steps, _ = jax.jit(lambda g, p: rule.update(g, rule.init(p), p))(grads, params)
  for name, sides in (("gate_proj", (128, 64)), ("down_proj", (64, 128))):
    step = np.asarray(steps["model"]["layers"]["mlp"][name]["weight"][...])
    assert step.shape == (2, *sides)
    for layer in step:
      values = np.linalg.svd(layer, compute_uv=False)
      scale = 0.2 * max(sides) ** 0.5
      assert 0.5 * scale < values.min() and values.max() < 1.4 * scale
  other = steps["model"]["embed_tokens"]["weight"][...]
  assert np.ptp(np.abs(other)) < 1e-3  # Adam's first step


@pytest.mark.parametrize("remat", ["dots", "attention", "full"])
def test_what_is_computed_again_changes_no_gradient(parts, remat):
  updates, params, batch, weight = parts
  model = create.tiny_qwen3(rows.VOCAB, remat=remat, unroll=False)
  graphdef, _ = nnx.split(model, nnx.Param)
  other = Updates(graphdef, params, supervised_loss, Optimizer())
  for a, b in zip(
      jax.tree.leaves(updates.accumulate(None, params, batch, weight)),
      jax.tree.leaves(other.accumulate(None, params, batch, weight)),
  ):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def gradient_of_a_scanned_model(remat):
  """The program, as text."""
  model = create.tiny_qwen3(rows.VOCAB, remat=remat, unroll=False)
  graphdef, params = nnx.split(model, nnx.Param)
  tokens = np.zeros((1, 16), np.int32)

  def loss(params):
    return nnx.merge(graphdef, params)(tokens, tokens)[0].sum()

  return str(jax.make_jaxpr(jax.grad(loss))(params))


def test_attention_that_is_kept_is_not_computed_again():
  def exponentials(remat):
    return gradient_of_a_scanned_model(remat).count(" exp ")

  # Forward, and in the backward pass the weights from what was kept.
  assert exponentials("none") == exponentials("attention") < exponentials("full")


def test_products_that_are_kept_are_not_computed_again():
  def products(remat):
    return gradient_of_a_scanned_model(remat).count("dot_general[")

  again = products("full") - products("none")
  assert products("dots") == products("none")
  assert products("attention") == products("full") - 2 and again >= 8


def test_watch_counts_and_ends_what_can_not_go_on():
  watch = Watch()
  line = {"step": 1, "trained_tokens": 0, "gradient_norm": 0.0, "compiles": 0}
  watch.see(line)
  lost = line | {"trained_tokens": 5, "gradient_norm": None}
  watch.see(lost)
  watch.see(lost)
  watch.see(line)
  watch.see(lost)
  watch.see(lost)
  with pytest.raises(UserError, match="peak_lr"):
    watch.see(lost)
  assert watch.empty == 2 and watch.skipped == 5


def test_wsd_is_stable_until_its_last_share():
  config = Optimizer(
      peak_lr=1.0,
      schedule="wsd",
      warmup_fraction=0.1,
      decay_fraction=0.2,
      end_fraction=0.0,
  )
  rates = [learning_rate(config, step, 100) for step in range(100)]
  assert rates[9:80] == [1.0] * 71 and rates[80] < 1.0
  assert rates[89] == pytest.approx(0.5) and rates[99] == 0.0


@pytest.mark.parametrize(
    "schedule, last", [("cosine", 0.1), ("linear", 0.1), ("constant", 1.0), ("wsd", 0.1)]
)
def test_schedules_warm_up_and_end(schedule, last):
  config = Optimizer(peak_lr=1.0, schedule=schedule, warmup_fraction=0.1, end_fraction=0.1)
  rates = [learning_rate(config, step, 100) for step in range(100)]
  assert rates[0] == pytest.approx(0.1) and rates[10] == pytest.approx(1.0)
  assert rates[-1] == pytest.approx(last)
  assert rates[10:] == sorted(rates[10:], reverse=True)
  assert learning_rate(config, 0, 1) == pytest.approx(1.0)


def test_budget_is_settled_once_from_measured_steps(monkeypatch):
  now = [0.0]
  monkeypatch.setattr("time.monotonic", lambda: now[0])
  budget = Budget(1000, 100.0)
  for done, seconds in enumerate([20.0, 2.0, 2.0, 2.0, 2.0, 9.0], 1):
    now[0] += seconds
    budget.step_took(seconds, done)
  assert budget.steps == budget.settled == 5 + int((97 - 28) / 2)
  again = Budget(1000, 100.0)
  again.settle(budget.settled)
  assert again.steps == budget.steps
  assert Budget(7, 0.0).settled == 7
