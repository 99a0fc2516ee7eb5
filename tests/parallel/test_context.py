"""Rows over the mesh axis `context`: orders, and states at given places."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.parallel import BATCH, context, make_mesh
from tests import eight_devices


def on_eight_devices(context_size: int, fsdp: int) -> None:
  mesh = make_mesh(data=8 // context_size // fsdp, fsdp=fsdp, context=context_size)
  rng = np.random.default_rng(0)
  rows = rng.normal(size=(4, 32, 6)).astype(np.float32)
  index = rng.integers(0, 32, (4, 24)).astype(np.int32)
  weight = rng.normal(size=(4, 24, 6)).astype(np.float32)

  def there_and_back(rows):
    return context.natural(rows[:, context.order(32)])

  def taken(rows, index):
    found = context.taken(rows, index, jnp.dtype("float32"))
    return jnp.sum(found * weight), found

  with jax.set_mesh(mesh):
    order = context.order(32)
    assert sorted(order) == list(range(32))
    placed = jax.device_put((rows, index), jax.NamedSharding(mesh, BATCH))
    np.testing.assert_array_equal(jax.jit(there_and_back)(placed[0]), rows)
    grad, found = jax.jit(jax.grad(taken, has_aux=True))(*placed)
  expected, want = jax.grad(taken, has_aux=True)(jnp.asarray(rows), jnp.asarray(index))
  np.testing.assert_allclose(found, want)
  np.testing.assert_allclose(grad, expected, atol=1e-6)


def test_orders_and_places():
  cases = {"4": [4, 1], "2": [2, 2], "8": [8, 1]}
  found = eight_devices.failures(on_eight_devices, cases)
  assert not any(found.values()), "\n".join(found.values())


def test_rows_that_do_not_divide():
  mesh = jax.sharding.AbstractMesh(
      (1, 1, 1, 4, 1), ("data", "fsdp", "expert", "context", "tensor")
  )
  with jax.sharding.use_abstract_mesh(mesh):
    # The first device has the first and the last chunk.
    assert list(context.order(16)[:4]) == [0, 1, 14, 15]
    with pytest.raises(RecordError, match="12 tokens"):
      context.order(12)
  assert context.order(12) is None
