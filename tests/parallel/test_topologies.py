"""Cloud TPU's names of slices, and what is said of those that are none."""

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.parallel import topologies


@pytest.mark.parametrize(
    "name,shape",
    [
        ("v5p-64", (2, 4, 4)),  # cores: 32 chips
        ("v5p-8", (2, 2, 1)),
        ("v4-32", (2, 2, 4)),
        ("v6e-256", (16, 16)),
        ("v5litepod-8", (2, 4)),
        ("v6e-1", (1, 1)),
        ("v5p:4x4x8", (4, 4, 8)),
    ],
)
def test_names(name, shape):
  assert topologies.parse(name).shape == shape


@pytest.mark.parametrize(
    "name", ["v9-8", "v5p", "v5p-48", "v5p-7", "v6e:2x2x2", "v6e-0"]
)
def test_names_of_nothing(name):
  with pytest.raises(UserError, match=f"--topology={name}"):
    topologies.parse(name)
