"""A step on 8 simulated devices is that on one, whatever axis the mesh has."""

from functools import partial

import jax
import numpy as np
import pytest
from flax import nnx

from clawgym_jax.configs.base import Optimizer
from clawgym_jax.data.batch import collate
from clawgym_jax.data.tree import Tree
from clawgym_jax.models import create
from clawgym_jax.parallel import make_mesh
from clawgym_jax.sft.scores import supervised_loss
from clawgym_jax.sft.setup import place
from clawgym_jax.sft.updates import Updates
from tests import eight_devices
from tests.sft import rows

CASES = {
    "data": ("qwen3", {"data": 8}, "adamw"),
    "fsdp": ("qwen3", {"fsdp": 8}, "muon"),
    "tensor": ("qwen3", {"data": 4, "tensor": 2}, "adafactor"),
    "context": ("qwen3", {"data": 2, "context": 4}, "adamw"),
    "expert": ("qwen3_moe", {"data": 4, "expert": 2}, "adamw"),
    "all but expert": ("llama", {"fsdp": 2, "context": 2, "tensor": 2}, "adamw"),
}
"""Family, mesh and update rule."""
QUICK = {"fsdp"}  # compiling is what takes the time


def on_a_device(tree):
  """The share of a tree that one device holds."""
  leaves = jax.tree.leaves(tree)
  held = sum(leaf.addressable_shards[0].data.size for leaf in leaves)
  return held / sum(leaf.size for leaf in leaves)


def step(family, rule, mesh):
  """Gradient, sums and the weights after one update, as numpy arrays."""
  model = create.tiny(family, rows.VOCAB)
  graphdef, params = nnx.split(model, nnx.Param)
  loss = partial(supervised_loss, z_loss=1e-3)
  updates = Updates(graphdef, params, loss, Optimizer(name=rule), mesh)
  trees = [Tree(rows.sequences(seed, 3), share=True).row(128) for seed in range(8)]
  batch = collate(trees, rows.SLOTS)
  placed = place(batch, mesh)
  grads, sums = updates.accumulate(None, params, placed, float(batch["weight"].sum()))
  state = updates.initial(params)
  # One program with collectives at a time: two can starve each other of threads.
  jax.block_until_ready((grads, sums, state))
  first = jax.tree.map(np.asarray, (grads, sums))
  params, state, norm = updates.apply(params, state, grads, 1e-3)
  jax.block_until_ready((params, state))
  if rule != "adafactor":
    np.testing.assert_allclose(on_a_device(state), on_a_device(params), rtol=0.05)
  return *first, float(norm), jax.tree.map(np.asarray, params)


def on_eight_devices(case):
  family, axes, rule = CASES[case]
  one = step(family, rule, None)
  mesh = make_mesh(**axes)
  with jax.set_mesh(mesh):
    many = step(family, rule, mesh)
  for name, value in one[1].items():
    np.testing.assert_allclose(many[1][name], value, rtol=1e-5, err_msg=name)
  np.testing.assert_allclose(many[2], one[2], rtol=1e-4)
  for a, b in zip(jax.tree.leaves(many[0]), jax.tree.leaves(one[0]), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)
  for a, b in zip(jax.tree.leaves(many[3]), jax.tree.leaves(one[3]), strict=True):
    # Adam turns a gradient near 0 into a step of either sign.
    assert np.mean(np.abs(a - b) > 1e-4) < 1e-3


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(CASES.keys() - QUICK, id="rest", marks=pytest.mark.slow),
    ],
)
def test_eight_devices_take_the_same_step(cases):
  found = eight_devices.failures(on_eight_devices, {case: [case] for case in cases})
  assert found.keys() == set(cases)
  assert not any(found.values()), "\n".join(found.values())
