"""Parameters by Hugging Face's names and back, from module paths alone.

A module's path is its Hugging Face name and its tensor Hugging Face's; the one
difference is that stacked layers and experts are one tensor each there. Nothing
is guessed: a missing tensor, one too many or a wrong shape is an error. LoRA's
variables are no tensors of the model: `peft` reads and writes them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from clawgym_jax.checkpoints.tensors import BLOCK, Tensor, part
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import CausalLM, ModelConfig
from clawgym_jax.models.rope_scaling import RopeScaling

Path = tuple[Any, ...]
"""A parameter's path in its model; numbers are layers that are not stacked."""
Span = tuple[range, ...]
"""A part of an array, by axis."""

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_LORA = ("lora_A", "lora_B")
_STACKS = ("layers", "experts")
_FUSED, _FUSED_DOWN = ".mlp.experts.gate_up_proj", ".mlp.experts.down_proj"


def build(
    config: ModelConfig,
    tensors: dict[str, Tensor],
    *,
    param_dtype: Any = jnp.float32,
    compute_dtype: Any = jnp.float32,
    rope_scaling: RopeScaling | None = None,
    **kw: Any,
) -> CausalLM:
  """A model whose parameters are `tensors`, laid out on the mesh in use.

  A host holds its devices' parts of one parameter at a time, and of mapped files
  it reads no more; a tensor that is dequantised is read whole by every host.
  LoRA's variables, if `kw` asks for them, are new. `rope_scaling` takes the place of
  the config's. `kw` goes to `CausalLM`.

  Raises:
    UserError: the tensors are not this config's.
  """
  if rope_scaling is not None:
    reach = rope_scaling.factor * rope_scaling.original_max_position_embeddings
    config = replace(
        config, rope_scaling=rope_scaling, max_position_embeddings=int(reach)
    )

  def create() -> CausalLM:
    return CausalLM(
        config,
        rngs=nnx.Rngs(0),
        param_dtype=param_dtype,
        compute_dtype=compute_dtype,
        **kw,
    )

  mesh = jax.sharding.get_mesh()
  graphdef, state = nnx.split(nnx.eval_shape(create))
  tensors = fitting(config, tensors)
  fresh = {}
  if any(is_lora(path) for path, _ in nnx.to_flat_state(state)):
    lora = jax.jit(lambda: nnx.state(create(), nnx.LoRAParam))()
    fresh = dict(nnx.to_flat_state(lora))

  def load(path: Path, variable: nnx.Variable) -> nnx.Variable:
    if is_lora(path):
      return fresh[path]
    shape = variable.shape
    if mesh.empty:
      whole = _span(shape, (slice(None),) * len(shape))
      parts = _assemble(path, shape, {whole}, tensors, param_dtype)
      return variable.replace(jnp.asarray(parts[whole]))
    spec = variable.get_metadata("out_sharding")
    sharding = jax.sharding.NamedSharding(mesh, spec)
    indices = sharding.addressable_devices_indices_map(shape).values()
    spans = {_span(shape, index) for index in indices}
    parts = _assemble(path, shape, spans, tensors, param_dtype)
    return variable.replace(
        jax.make_array_from_callback(
            shape, sharding, lambda index: parts[_span(shape, index)]
        )
    )

  return nnx.merge(graphdef, nnx.map_state(load, state))


def tensors(params: nnx.State) -> dict[str, Tensor]:
  """A model's parameters by Hugging Face's names; LoRA's left out.

  They are cut on their devices and brought to the host one by one.
  """
  found = {}
  for path, variable in nnx.to_flat_state(params):
    if not is_lora(path):
      value = variable[...]
      for name, index in pieces(path, value.shape):
        found[name] = Tensor(
            value.shape[len(index) :],
            np.dtype(value.dtype),
            lambda value=value, index=index: np.asarray(value[index]),
        )
  return found


def path_of(dotted: str) -> Path:
  """The path that is written with dots."""
  return tuple(int(part) if part.isdigit() else part for part in dotted.split("."))


def pieces(path: Path, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
  """(Hugging Face name, index in the parameter) of each tensor in a parameter."""
  kinds = stacks(path)
  for index in itertools.product(*(range(size) for size in shape[: len(kinds)])):
    yield _name(path, dict(zip(kinds, index))), index


def layout(config: ModelConfig) -> dict[str, tuple[int, ...]]:
  """The shape of every tensor that a checkpoint of `config` has, by name."""
  return dict(_layout(config))


@functools.lru_cache(maxsize=4)
def _layout(config: ModelConfig) -> tuple[tuple[str, tuple[int, ...]], ...]:
  model = nnx.eval_shape(lambda: CausalLM(config, rngs=nnx.Rngs(0)))
  return tuple(
      (name, variable.shape[len(index) :])
      for path, variable in nnx.to_flat_state(nnx.state(model, nnx.Param))
      for name, index in pieces(path, variable.shape)
  )


def fitting(config: ModelConfig, given: dict[str, Tensor]) -> dict[str, Tensor]:
  """`given` as `config` lays it out: no tensor more, less or of another shape.

  Experts that transformers fused are parted, buffers that older versions saved
  and a head that is the embedding once more are left out. The order is the
  layout's, so that the same model makes the same file whatever it came from.

  Raises:
    UserError: names the first tensor that does not fit, and how.
  """
  given = _parted(config, given)
  wanted = layout(config)
  if config.tie_word_embeddings and _HEAD in given:
    if not _same(given[_HEAD], given.get(_EMBEDDING)):
      raise UserError(
          f"the checkpoint has a {_HEAD} other than {_EMBEDDING}, but config.json"
          " says tie_word_embeddings: set it to false there, or drop the tensor"
      )
    del given[_HEAD]
  if _HEAD in wanted and _HEAD not in given and _EMBEDDING in given:
    raise UserError(
        f"the checkpoint has no {_HEAD}, but config.json does not say"
        " tie_word_embeddings: set it to true there, or add the tensor"
    )
  for name, shape in wanted.items():
    if name not in given:
      raise UserError(f"the checkpoint has no tensor {name}, which its config needs")
    if given[name].shape != shape:
      raise UserError(
          f"tensor {name} has shape {given[name].shape} where the config gives"
          f" {shape}: the config and the weights are of different models"
      )
    if given[name].dtype.kind in "biu":
      raise UserError(
          f"tensor {name} holds {given[name].dtype.name}, no fractions: quantised"
          " weights are not read, save the model in a float type"
      )
  for name in given:
    if name not in wanted:
      raise UserError(
          f"the checkpoint has a tensor {name} that its config knows nothing of:"
          " the config and the weights are of different models"
      )
  return {name: given[name] for name in wanted}


def is_lora(path: Path) -> bool:
  return any(part in path for part in _LORA)


def _parted(config: ModelConfig, given: dict[str, Tensor]) -> dict[str, Tensor]:
  """Each expert apart, where transformers saved a layer's as one."""
  found = {}
  for name, tensor in given.items():
    if name.endswith("rotary_emb.inv_freq"):
      continue
    fused = name.endswith((_FUSED, _FUSED_DOWN)) and len(tensor.shape) == 3
    if not fused:
      found[name] = tensor
      continue
    prefix, kind = name.rsplit(".", 1)
    half = tensor.shape[1] // 2
    cuts = {"down_proj": slice(None)}
    if kind == "gate_up_proj":
      cuts = {"gate_proj": slice(0, half), "up_proj": slice(half, None)}
    for expert in range(tensor.shape[0]):
      for cut, rows in cuts.items():
        found[f"{prefix}.{expert}.{cut}.weight"] = part(tensor, (expert, rows))
  return found


def _same(a: Tensor, b: Tensor | None) -> bool:
  """Whether two tensors have the same bytes."""
  if b is None or (a.shape, a.dtype) != (b.shape, b.dtype):
    return False
  x, y = (np.ascontiguousarray(t.read()).reshape(-1).view(np.uint8) for t in (a, b))
  return all(
      np.array_equal(x[at : at + BLOCK], y[at : at + BLOCK])
      for at in range(0, x.size, BLOCK)
  )


def _assemble(
    path: Path,
    shape: tuple[int, ...],
    spans: set[Span],
    tensors: dict[str, Tensor],
    dtype: Any,
) -> dict[Span, np.ndarray]:
  """Parts of a parameter, each tensor that it stacks read once at most."""
  found = {span: np.empty([len(axis) for axis in span], dtype) for span in spans}
  for name, at in pieces(path, shape):
    value = None
    for span, out in found.items():
      if all(place in axis for place, axis in zip(at, span)):
        value = tensors[name].read() if value is None else value
        place = tuple(axis.index(i) for i, axis in zip(at, span))
        inner = tuple(slice(axis.start, axis.stop) for axis in span[len(at) :])
        out[place] = value[inner]
  return found


def _span(shape: tuple[int, ...], index: tuple[slice, ...]) -> Span:
  return tuple(range(size)[cut] for size, cut in zip(shape, index))


def stacks(path: Path) -> tuple[str, ...]:
  """What a parameter's leading axes are: layers, experts, both or nothing."""
  return tuple(
      stack
      for stack in _STACKS
      if stack in path and not isinstance(path[path.index(stack) + 1], int)
  )


def _name(path: Path, index: dict[str, int]) -> str:
  parts: list[Any] = []
  for piece in path:
    parts.append(piece)
    if piece in index:
      parts.append(index[piece])
  return ".".join(map(str, parts))
