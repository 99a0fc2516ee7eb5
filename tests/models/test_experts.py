"""On an accelerator tokamax multiplies the experts, where it is installed.

tokamax needs a GPU or a TPU. A stub with the signature of its `ragged_dot`
(version 0.0.12) stands in for it and is as awkward: its result comes out of a
Pallas kernel, which shard_map admits only without its check, and rows of no
group are NaN.
"""

from __future__ import annotations

import contextlib
import sys
import types
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.experimental import pallas as pl

from clawgym_jax import parallel
from clawgym_jax.models import create
from clawgym_jax.models.layers import experts
from clawgym_jax.models.layers.experts import Experts, grouped_matmul
from clawgym_jax.parallel import make_mesh


@contextlib.contextmanager
def accelerator():
  """jax says that it runs on a TPU, tokamax is there; gives the calls of it."""
  calls = []

  def ragged_dot(
      lhs,
      rhs,
      group_sizes,
      precision=None,
      preferred_element_type=None,
      group_offset=None,
      activation=None,
      *,
      implementation=None,
  ):
    calls.append((
        *((str(x.dtype), x.shape) for x in (lhs, rhs, group_sizes)),
        {"precision": precision, "preferred_element_type": preferred_element_type},
    ))
    assert (group_offset, activation, implementation) == (None, None, None)
    out = jax.lax.ragged_dot(lhs, rhs, group_sizes, **calls[-1][-1])
    used = jnp.arange(lhs.shape[0])[:, None] < jnp.sum(group_sizes)
    return through_a_kernel(jnp.where(used, out, jnp.nan))

  stub = types.ModuleType("tokamax")
  stub.ragged_dot = ragged_dot
  with (
      mock.patch.dict(sys.modules, tokamax=stub),
      mock.patch.object(parallel, "platform", lambda: "tpu"),
  ):
    yield calls


def through_a_kernel(x: jax.Array) -> jax.Array:
  def copy(source, target):
    target[...] = source[...]

  out = jax.ShapeDtypeStruct(x.shape, x.dtype)
  return pl.pallas_call(copy, out_shape=out, interpret=True)(x)


def gradients(x, weight, sizes, dtype="float32"):
  """Result and gradients of x [rows, in] and weight [groups, out, in]."""

  def loss(x, weight):
    out = grouped_matmul(x, weight, sizes, jnp.dtype(dtype))
    return jnp.sum(jnp.sin(out)), out

  return jax.value_and_grad(loss, (0, 1), has_aux=True)(x, weight)


@pytest.mark.parametrize("dtype,precision", [("float32", "highest"), ("bfloat16", None)])
def test_arguments(dtype, precision):
  """The weights' gradient is no third call: it is XLA's."""
  x, weight = jnp.zeros((6, 16)), jnp.zeros((4, 8, 16))
  sizes = jnp.zeros(4, jnp.int32)
  with accelerator() as calls:
    jax.eval_shape(lambda *args: gradients(*args, dtype), x, weight, sizes)
  how = {"precision": precision, "preferred_element_type": jnp.float32}
  assert calls == [
      ((dtype, (6, 16)), (dtype, (4, 16, 8)), ("int32", (4,)), how),
      ((dtype, (6, 8)), (dtype, (4, 8, 16)), ("int32", (4,)), how),
  ]


def test_rows_of_no_group_count_for_nothing():
  rng = np.random.default_rng(0)
  x, weight = (
      jnp.asarray(rng.normal(size=size), jnp.float32) for size in ((6, 16), (4, 8, 16))
  )
  sizes = jnp.asarray([2, 0, 1, 1], jnp.int32)  # of 6 rows
  expected = gradients(x, weight, sizes)
  with accelerator() as calls:
    found = gradients(x, weight, sizes)
  assert len(calls) == 2
  for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
    np.testing.assert_allclose(a, b, atol=1e-6)
  assert not np.any(found[0][1][4:])


def test_shard_map_leaves_out_its_check_for_kernels_alone():
  """Values and gradients on 8 devices: see test_mesh.py."""
  config = create.tiny_config("qwen3_moe", 96)
  x = jax.ShapeDtypeStruct((2, 4, config.hidden_size), jnp.float32)
  chosen = jax.ShapeDtypeStruct((2, 4, 2), jnp.int32)
  shares = jax.ShapeDtypeStruct((2, 4, 2), jnp.float32)

  def checked() -> bool:
    layer = Experts(
        config,
        layers=None,
        rngs=nnx.Rngs(0),
        param_dtype=jnp.float32,
        compute_dtype=jnp.float32,
    )
    with mock.patch.object(jax, "shard_map", wraps=jax.shard_map) as spy:
      jax.eval_shape(layer, x, chosen, shares)
    return spy.call_args.kwargs["check_vma"]

  with jax.set_mesh(make_mesh(devices=jax.devices()[:1])):
    assert checked()
    with accelerator() as calls:
      assert not checked()
  assert len(calls) == 3  # gate, up and down


def test_an_accelerator_without_tokamax():
  with accelerator(), mock.patch.dict(sys.modules, tokamax=None):
    assert experts._ragged_dot() is jax.lax.ragged_dot
