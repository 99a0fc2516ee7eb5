"""Parameters by Hugging Face's names and back, from module paths alone.

A module's path is its Hugging Face name and its tensor Hugging Face's; the one
difference is that stacked layers are one tensor a layer there. Nothing is
guessed: a missing tensor or a wrong shape is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import CausalLM, ModelConfig

Read = Callable[[str], np.ndarray]
"""Gives the tensor of a Hugging Face name."""


def build(
    config: ModelConfig,
    read: Read,
    *,
    param_dtype: Any = jnp.float32,
    compute_dtype: Any = jnp.float32,
    **kw: Any,
) -> CausalLM:
  """A model whose parameters are what `read` gives, on the mesh in use.

  No more than one parameter is held twice. `kw` goes to `CausalLM`.
  """

  def create() -> CausalLM:
    return CausalLM(
        config,
        rngs=nnx.Rngs(0),
        param_dtype=param_dtype,
        compute_dtype=compute_dtype,
        **kw,
    )

  mesh = jax.sharding.get_mesh()
  abstract = nnx.eval_shape(create)
  graphdef, state = nnx.split(abstract)

  def load(path: tuple[Any, ...], variable: nnx.Variable) -> nnx.Variable:
    value = _assemble(path, variable.shape, config, read)
    value = value.astype(param_dtype)
    if mesh.empty:
      return variable.replace(jnp.asarray(value))
    spec = variable.get_metadata("out_sharding")
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return variable.replace(jax.device_put(value, sharding))

  return nnx.merge(graphdef, nnx.map_state(load, state))


def tensors(params: nnx.State) -> Iterator[tuple[str, np.ndarray]]:
  """(Hugging Face name, tensor in the parameter's dtype)."""
  for path, variable in nnx.to_flat_state(params):
    yield from _named(path, np.asarray(jax.device_get(variable[...])))


def reader(params: dict[str, np.ndarray]) -> Read:
  """Reads Hugging Face tensors from parameters by dotted path, stacked or not."""
  named: dict[str, np.ndarray] = {}
  for dotted, value in params.items():
    path = tuple(int(p) if p.isdigit() else p for p in dotted.split("."))
    for name, tensor in _named(path, value):
      named[name] = tensor

  def read(name: str) -> np.ndarray:
    if name not in named:
      raise UserError(f"the saved parameters have no tensor {name}")
    return named[name]

  return read


def _named(
    path: tuple[Any, ...], value: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
  if _stacked(path):
    for index, layer in enumerate(value):
      yield _name(path, index), layer
  else:
    yield _name(path), value


def _assemble(
    path: tuple[Any, ...], shape: tuple[int, ...], config: ModelConfig, read: Read
) -> np.ndarray:
  if not _stacked(path):
    return _checked(_name(path), shape, read)
  layers = [
      _checked(_name(path, index), shape[1:], read)
      for index in range(config.num_hidden_layers)
  ]
  return np.stack(layers)


def _checked(name: str, shape: tuple[int, ...], read: Read) -> np.ndarray:
  value = read(name)
  if value.shape != shape:
    raise UserError(
        f"tensor {name} has shape {value.shape} where the config gives {shape}:"
        " the config and the weights are of different models"
    )
  return value


def _stacked(path: tuple[Any, ...]) -> bool:
  """Whether the parameter at `path` holds every layer's."""
  return "layers" in path and not isinstance(path[path.index("layers") + 1], int)


def _name(path: tuple[Any, ...], layer: int | None = None) -> str:
  parts = list(path)
  if layer is not None:
    parts.insert(parts.index("layers") + 1, layer)
  return ".".join(map(str, parts))

