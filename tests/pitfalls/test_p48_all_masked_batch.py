"""P48: a batch without a trained token has loss 0 and changes no weight to NaN."""

import jax
import numpy as np
from flax import nnx

from clawgym_jax.configs.base import Optimizer
from clawgym_jax.models import create
from clawgym_jax.sft.scores import supervised_loss
from clawgym_jax.sft.updates import Updates
from tests.sft import rows


def test_loss_is_zero_and_gradients_are_finite():
  graphdef, params = nnx.split(create.tiny_qwen3(rows.VOCAB), nnx.Param)
  batch = rows.packed(rows.sequences(), share=True)
  batch["weight"] = np.zeros_like(batch["weight"])
  before = jax.tree.map(np.asarray, params)
  updates = Updates(graphdef, params, supervised_loss, Optimizer(peak_lr=1e-2))
  grads, sums = updates.accumulate(None, params, batch, 0.0)
  assert float(sums["loss"]) == 0.0
  params, _, norm = updates.apply(params, updates.initial(params), grads, 1e-2)
  assert float(norm) == 0.0
  jax.tree.map(np.testing.assert_array_equal, before, params)
