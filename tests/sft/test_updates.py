"""Micro-batches, schedules, skipped updates and the time budget."""

import jax
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.configs.base import Optimizer
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import create
from clawgym_jax.sft.budget import Budget
from clawgym_jax.sft.optimizer import learning_rate
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
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6),
      state[0], whole,
  )


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


@pytest.mark.parametrize("schedule, last", [("cosine", 0.1), ("linear", 0.1), ("constant", 1.0)])
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
