"""P54: at learning rate 0 every ratio stays 1. P25: also at temperature 0.6."""

import dataclasses

import pytest
from flax import nnx

from clawgym_jax.configs.base import Optimizer, RlConfig, Rollouts
from clawgym_jax.models import create
from clawgym_jax.rl.learner import Learner
from clawgym_jax.rl.rows import experience
from clawgym_jax.serve import Engine, Sampling
from tests.rl.groups import sampled

VOCAB = 320


@pytest.fixture(scope="module")
def engine():
  with Engine(
      create.tiny_qwen3(VOCAB), None, slots=4, max_len=64,
      prefill_shapes=((1, 16),), decode_steps=4,
  ) as engine:  # fmt: skip
    yield engine


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_engine_and_trainer_agree_and_nothing_drifts(engine, temperature):
  config = RlConfig(
      rollouts=Rollouts(temperature=temperature, max_len=64),
      optimizer=Optimizer(peak_lr=0.0, schedule="constant", warmup_fraction=0.0),
      row_length=128,
      micro_rows=1,
      updates_per_step=2,
  )
  sampling = Sampling(max_tokens=8, temperature=temperature)
  learner = Learner(config, *nnx.split(create.tiny_qwen3(VOCAB), nnx.Param))
  for seed in range(2):
    made = experience(
        sampled(engine, sampling, vocab=VOCAB, seed=seed),
        row_length=128, advantage="grpo", reward="code", temperature=temperature,
    )  # fmt: skip
    assert made.trained_tokens == 2 * 4 * 2 * 8
    metrics = learner.learn(made, 0.0, seed)
    assert metrics["mismatch_max"] < 1e-4
    assert abs(metrics["ratio"] - 1) < 1e-6
    assert metrics["clipped"] == metrics["is_truncated"] == 0
    assert metrics["gradient_norm"] > 0


def test_at_temperature_one_only_the_tempered_column_would_differ(engine):
  """The two columns differ at 0.6, so mixing them up would be seen."""
  one = engine.generate([1, 2, 3], Sampling(max_tokens=8, temperature=0.6)).result(60)
  assert max(abs(a - b) for a, b in zip(one.logprobs, one.untempered_logprobs)) > 1e-2


def test_kl_to_the_reference_is_zero_before_the_first_update(engine):
  config = RlConfig(rollouts=Rollouts(max_len=64), row_length=128, micro_rows=1)
  config = dataclasses.replace(
      config, objective=dataclasses.replace(config.objective, kl_coef=0.1)
  )
  graphdef, params = nnx.split(create.tiny_qwen3(VOCAB), nnx.Param)
  reference = nnx.state(create.tiny_qwen3(VOCAB), nnx.Param)
  learner = Learner(config, graphdef, params, reference)
  made = experience(
      sampled(engine, Sampling(max_tokens=8), vocab=VOCAB),
      row_length=128, advantage="grpo", reward="code", temperature=1.0,
  )  # fmt: skip
  assert abs(learner.learn(made, 1e-2, 0)["kl"]) < 1e-6
  after = learner.learn(made, 1e-2, 1)
  assert after["kl"] > 1e-6
  assert after["ratio"] == pytest.approx(1, abs=1e-6)  # old is recomputed each time
