"""A fingerprint tells two sets of weights apart, wherever they lie."""

import jax.numpy as jnp
import pytest

from clawgym_jax.models.fingerprint import fingerprint


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_every_single_element_counts(dtype):
  weights = jnp.zeros((3, 5), dtype)
  seen = {fingerprint({"w": weights})}
  for row in range(3):
    for column in range(5):
      seen.add(fingerprint({"w": weights.at[row, column].set(-0.0)}))
  assert len(seen) == 16
  assert fingerprint({"w": jnp.zeros((3, 5), dtype)}) in seen


def test_names_shapes_types_and_order_count():
  a, b = jnp.arange(6.0), jnp.arange(6.0)[::-1]
  same_bits = [
      {"a": a, "b": b}, {"a": b, "b": a}, {"a": a, "c": b},
      {"a": a.reshape(2, 3), "b": b}, {"a": a.astype(jnp.bfloat16), "b": b},
  ]  # fmt: skip
  assert len({fingerprint(params) for params in same_bits}) == len(same_bits)
