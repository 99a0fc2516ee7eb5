"""What computes attention on accelerators and in long rows agrees with the definition.

Pallas kernels are interpreted here; tests/compile compiles them for a TPU.
"""

from __future__ import annotations

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clawgym_jax.models.layers.attention import blockwise, libraries, short, tree_kernel
from clawgym_jax.models.layers.attention.scores import Part, PartWindow
from tests.models.test_attention import dense, inputs

TIME, DIM = 384, 16
PATHS = {
    "short": (short.forward, short.backward),
    "blockwise": (blockwise.forward, blockwise.backward),
    "tree kernel": (
        partial(tree_kernel.forward, interpret=True),
        partial(tree_kernel.backward, interpret=True),
    ),
}


def laid_out(qkv) -> list[jax.Array]:
  """[batch, time, heads, dim] each -> as a Part has them, scaled."""
  query, key, value = (x.transpose(0, 2, 1, 3) for x in qkv)
  batch, kv_heads, time, dim = key.shape
  query = query.reshape(batch, kv_heads, -1, time, dim) * dim**-0.5
  return [query, key, value]


def definition(query, key, value, mask) -> jax.Array:
  """`dense`, of a Part's operands; mask [batch, queries, time]."""
  heads = query.reshape(query.shape[0], -1, *query.shape[3:])
  out = dense(
      *(x.transpose(0, 2, 1, 3) for x in (heads * DIM**0.5, key, value)), mask
  )
  return out.transpose(0, 2, 1, 3).reshape(query.shape)


def agree(part: Part, mask, forward, backward, tolerance=2e-5) -> None:
  """Value and gradients of a path, against the definition's."""
  weight = np.random.default_rng(1).normal(size=part.query.shape).astype(np.float32)
  operands = part.query, part.key, part.value
  expected, gradients = jax.vjp(lambda *qkv: definition(*qkv, mask), *operands)
  out, logsumexp = jax.jit(forward)(part)
  np.testing.assert_allclose(out, expected, atol=tolerance)
  inner = jnp.sum(weight * out, axis=-1, keepdims=True)
  found = jax.jit(backward)(part, logsumexp, weight, inner)
  for one, want in zip(found, gradients(weight)):
    np.testing.assert_allclose(one, want, atol=4 * tolerance)


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
  monkeypatch.setattr(blockwise, "_BLOCK", 128)  # several, as in a long row
  return PATHS[request.param]


def test_trees(path):
  qkv, end, mask = inputs(2, TIME, 6, 2, DIM)
  part = Part(*laid_out(qkv), end, jnp.zeros(1, jnp.int32), None)
  agree(part, mask, *path)


@pytest.mark.parametrize("name", ["blockwise", "tree kernel"])
@pytest.mark.parametrize("device", [0, 1])
def test_two_runs_of_a_row(name, device, monkeypatch):
  """What one of two devices computes under context parallelism."""
  monkeypatch.setattr(blockwise, "_BLOCK", 64)
  qkv, end, mask = inputs(1, 512, 4, 2, DIM, seed=3)
  query, key, value = laid_out(qkv)
  starts = np.asarray([device, 3 - device]) * 128
  mine = (starts[:, None] + np.arange(128)).reshape(-1)
  starts = jnp.asarray(starts, jnp.int32)
  part = Part(query[:, :, :, mine], key, value, end, starts, None)
  agree(part, mask[:, mine], *PATHS[name])


def test_keys_that_no_query_of_a_block_sees_are_not_read(path):
  """Numbers that would spoil all they touch, where nothing may look."""
  qkv, _, _ = inputs(1, TIME, 2, 1, DIM)
  query, key, value = laid_out(qkv)
  end = np.full((1, TIME), TIME, np.int32)
  end[0, :128] = 128
  mask = np.tril(np.ones((TIME, TIME), bool))
  mask = mask & (np.arange(TIME)[:, None] < end[:, None])
  zeros = jnp.zeros(1, jnp.int32)
  part = Part(query, key, value, jnp.asarray(end), zeros, None)
  agree(part, jnp.asarray(mask), *path)
  if path is not PATHS["short"]:
    late = part._replace(query=query[:, :, :, 128:], starts=zeros + 128)
    late = late._replace(key=key.at[:, :, :128].set(jnp.nan))
    assert np.isfinite(path[0](late)[0]).all()


def test_windows_in_long_rows(monkeypatch):
  monkeypatch.setattr(blockwise, "_BLOCK", 64)
  qkv, end, mask = inputs(2, 192, 4, 2, DIM)
  positions = mask.sum(axis=-1) - 1
  mask &= positions[:, :, None] - positions[:, None, :] < 20
  window = PartWindow(positions, positions, jnp.int32(20))
  part = Part(*laid_out(qkv), end, jnp.zeros(1, jnp.int32), window)
  assert not tree_kernel.fits(part)
  agree(part, mask, blockwise.forward, blockwise.backward)


@pytest.mark.parametrize("library", ["splash", "tokamax"])
def test_flat_rows_by_a_library(library, monkeypatch):
  if library == "tokamax":
    pytest.importorskip("tokamax")
    monkeypatch.setattr(sys, "argv", sys.argv[:1])  # it reads the program's flags
    attend = partial(libraries.tokamax_attention, implementation="xla")
  else:
    attend = partial(libraries.splash_attention, interpret=True)
  time = 256
  qkv, _, _ = inputs(2, time, 4, 2, DIM)
  end = np.arange(1, time + 1, dtype=np.int32)[None].repeat(2, 0)  # padding
  for row, stops in enumerate(((100, 130, 250), (256,))):
    for start, stop in zip((0, *stops), stops):
      end[row, start:stop] = stop
  i, j = np.arange(time)[:, None], np.arange(time)
  mask = jnp.asarray((j <= i) & (i < end[:, None]))
  query, key, value = laid_out(qkv)

  def loss(attend, qkv):
    out = attend(*qkv)
    return jnp.sum(jnp.sin(out) * out), out

  def ours(*qkv):
    return attend(Part(*qkv, jnp.asarray(end), jnp.zeros(1, jnp.int32), None))

  qkv = query, key, value
  found, out = jax.grad(lambda qkv: loss(ours, qkv), has_aux=True)(qkv)
  wanted, expected = jax.grad(
      lambda qkv: loss(lambda *qkv: definition(*qkv, mask), qkv), has_aux=True
  )(qkv)
  np.testing.assert_allclose(out, expected, atol=2e-5)
  for one, want in zip(found, wanted):
    np.testing.assert_allclose(one, want, atol=1e-4)


def test_memory_of_long_rows_is_linear():
  """What the compiler plans for twice the length is about twice as much."""

  def temporaries(time: int) -> int:
    shape = jax.ShapeDtypeStruct((1, 1, 2, time, DIM), jnp.float32)
    keys = jax.ShapeDtypeStruct((1, 1, time, DIM), jnp.float32)
    end = jax.ShapeDtypeStruct((1, time), jnp.int32)
    sums = jax.ShapeDtypeStruct((1, 1, 2, time, 1), jnp.float32)

    def run(query, key, value, end, logsumexp, inner):
      part = Part(query, key, value, end, jnp.zeros(1, jnp.int32), None)
      return blockwise.forward(part), blockwise.backward(part, logsumexp, query, inner)

    lowered = jax.jit(run).lower(shape, keys, keys, end, sums, sums)
    return lowered.compile().memory_analysis().temp_size_in_bytes

  short_row, long_row = temporaries(8192), temporaries(32768)
  assert long_row < 4.2 * short_row
  assert long_row < 0.02 * 4 * 2 * 32768**2  # of the scores, float32
