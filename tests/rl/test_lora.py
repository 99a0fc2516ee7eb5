"""Adapters are trained by GRPO and served by the engine as the trainer computes them."""

import numpy as np
from flax import nnx

from clawgym_jax.configs.base import Optimizer, RlConfig, Rollouts
from clawgym_jax.models import create
from clawgym_jax.models.layers.lora import TARGETS, LoraConfig
from clawgym_jax.rl.learner import Learner
from clawgym_jax.rl.rows import experience
from clawgym_jax.serve import Engine, Sampling
from tests.rl.groups import sampled

VOCAB = 320


def test_the_engine_serves_what_was_learnt():
  lora = LoraConfig(rank=2, alpha=8.0, targets=TARGETS)
  model = create.tiny_qwen3(VOCAB, lora=lora)
  graphdef, params = nnx.split(model, nnx.Param)
  before = {
      path: np.array(leaf[...])
      for path, leaf in nnx.to_flat_state(params)
      if not isinstance(leaf, nnx.LoRAParam)
  }
  config = RlConfig(
      rollouts=Rollouts(max_len=64),
      optimizer=Optimizer(peak_lr=1e-2, schedule="constant", warmup_fraction=0.0),
      row_length=128,
      micro_rows=1,
  )
  with Engine(
      model, None, slots=4, max_len=64, prefill_shapes=((1, 16),), decode_steps=4
  ) as engine:
    learner = Learner(config, graphdef, params)
    mismatches = []
    for step in range(3):
      made = experience(
          sampled(engine, Sampling(max_tokens=8), vocab=VOCAB, seed=step),
          row_length=128, advantage="grpo", reward="code", temperature=1.0,
      )  # fmt: skip
      mismatches.append(learner.learn(made, 1e-2, step)["mismatch_max"])
      engine.update_weights(learner.params, step + 1)
  assert max(mismatches) < 1e-4
  moved = 0.0
  for path, leaf in nnx.to_flat_state(learner.params):
    if path in before:
      np.testing.assert_array_equal(leaf[...], before[path])
    elif "lora_B" in path:
      moved += float(np.abs(leaf[...]).sum())
  assert moved > 0.1
