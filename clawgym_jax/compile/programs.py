"""The programs of a run, lowered for devices that are not here.

Nothing has values: weights, optimizer state, batches and caches are shapes laid
out on a mesh. What is lowered is what runs: the losses, updates and decode steps
of sft, rl and serve.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from clawgym_jax.checkpoints.hf import load_config
from clawgym_jax.configs.base import ModelSource, RlConfig, SftConfig
from clawgym_jax.contracts.row import Row, empty_row
from clawgym_jax.data.batch import collate
from clawgym_jax.models import create
from clawgym_jax.models.cache import init_cache
from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.flops import causal_pairs
from clawgym_jax.models.known import known
from clawgym_jax.parallel.mesh import BATCH, make_mesh
from clawgym_jax.rl.learner import policy_loss
from clawgym_jax.serve.steps import DecodeInput, Steps
from clawgym_jax.sft.scores import supervised_loss
from clawgym_jax.sft.setup import adapters, unrolling
from clawgym_jax.sft.updates import Loss, Updates

DECODE_STEPS = 8  # as `serve.Engine` compiles them


@dataclass(frozen=True)
class Program:
  """One lowered program, and what it works on.

  Attributes:
    lowered: to be compiled.
    model: its shape.
    held: bytes a device of each kind of argument.
    tokens, scored, pairs: of one call, as `models.flops.training` counts them;
      for decode, those of one token a slot.
    passes: forward passes that a call's useful products amount to, 3 in training.
    product_passes, attention_passes: those of a layer, with what is computed again.
  """

  lowered: jax.stages.Lowered
  model: ModelConfig
  held: dict[str, int]
  tokens: int
  scored: int
  pairs: int
  passes: int
  product_passes: int
  attention_passes: int


def shape_of(source: ModelSource, layers: int | None) -> ModelConfig:
  """The model's shape, with another number of layers if one is given."""
  if source.source == "tiny":
    config = create.tiny_config("qwen3", source.vocab_size)
  elif (Path(source.source) / "config.json").is_file():
    config = load_config(Path(source.source))
  else:
    config = known(source.source.removeprefix("package:llm-"))
  if layers is not None:
    types = config.layer_types and config.layer_types[:layers]
    config = dataclasses.replace(config, num_hidden_layers=layers, layer_types=types)
  return config


def sft(
    config: SftConfig, devices: list[jax.Device], *, layers: int | None = None
) -> Program:
  """One micro-batch's gradients and the update, as one program.

  Every token of the rows is counted as trained: the head's cost is the most that
  it can be. `layers` unrolls so many instead of a scan over the model's own.
  """
  rows = config.data.batch_rows // config.micro_batches
  flat = not config.data.share_prefixes
  loss = functools.partial(supervised_loss, z_loss=config.z_loss)
  return _training(config, loss, rows, config.data.row_length, flat, devices, layers)


def rl(
    config: RlConfig, devices: list[jax.Device], *, layers: int | None = None
) -> Program:
  """As `sft`, of the policy's loss and the rows of a micro-batch."""
  return _training(
      config, policy_loss(config), config.micro_rows, config.row_length, False,
      devices, layers,
  )  # fmt: skip


def _training(
    config: SftConfig | RlConfig,
    loss: Loss,
    rows: int,
    time: int,
    flat: bool,
    devices: list[jax.Device],
    layers: int | None,
) -> Program:
  shape = shape_of(config.model, layers)
  mesh = make_mesh(**dataclasses.asdict(config.mesh), devices=devices)
  # Not `set_mesh`: nothing may run on devices that are not here.
  with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
    graphdef, params = nnx.split(
        nnx.eval_shape(
            lambda: CausalLM(
                shape,
                rngs=nnx.Rngs(0),
                compute_dtype=jnp.dtype(config.model.compute_dtype),
                scan_layers=layers is None,
                unroll=unrolling(config.model),
                remat=config.model.remat,
                lora=adapters(config.model.lora),
                flat_rows=flat,
            )
        ),
        nnx.Param,
    )
    params = _placed(params, mesh)
    updates = Updates(graphdef, params, loss, config.optimizer, mesh)
    optimizer = updates.initial.eval_shape(params)
    batch = _batch(rows, time, mesh, kl=getattr(config, "objective", None))

    def step(params, optimizer, batch, rate):
      sums = updates.summed(params, (batch,), 1.0)
      return *updates.apply(params, optimizer, sums[0], rate), sums[1]

    lowered = jax.jit(step, donate_argnums=(0, 1)).lower(
        params, optimizer, batch, jnp.float32(1e-5)
    )
  held = {"weights": params, "optimizer": optimizer, "batch": batch}
  return Program(
      lowered=lowered,
      model=shape,
      held={name: _bytes(tree) for name, tree in held.items()},
      tokens=rows * time,
      scored=rows * time,
      pairs=rows * causal_pairs(time),
      passes=3,
      product_passes=4 if config.model.remat in ("full", "attention") else 3,
      attention_passes=4 if config.model.remat == "full" else 3,
  )


def decode(
    config: RlConfig, devices: list[jax.Device], *, layers: int | None = None
) -> Program:
  """Decode steps of the rollout engine, which serves from one device."""
  shape = shape_of(config.model, layers)
  dtype = jnp.dtype(config.model.compute_dtype)
  slots, length = config.rollouts.slots, config.rollouts.max_len + 1
  mesh = make_mesh(devices=devices[:1])
  with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
    params = nnx.eval_shape(
        lambda: nnx.state(
            CausalLM(shape, rngs=nnx.Rngs(0), compute_dtype=dtype), nnx.Param
        )
    )
    served = jax.eval_shape(lambda p: create.serving_params(p, dtype), params)
    leaves, tree = jax.tree.flatten(served)
    cache = jax.eval_shape(lambda: init_cache(shape, slots, length, dtype))
    steps = Steps(
        create.serving_graphdef(shape, dtype),
        tree,
        slots=slots,
        max_len=length,
        steps=DECODE_STEPS,
    )
    here = jax.NamedSharding(mesh, jax.P())
    weights, cache, batch = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here),
        (tuple(leaves), cache, DecodeInput.empty(slots)),
    )
    lowered = jax.jit(steps.decode, donate_argnums=1).lower(
        weights, cache, batch, np.bool_(False)
    )
  held = {"weights": weights, "cache": cache, "batch": batch}
  return Program(
      lowered=lowered,
      model=shape,
      held={name: _bytes(value) for name, value in held.items()},
      tokens=slots,
      scored=slots,
      pairs=slots * length,
      passes=1,
      product_passes=1,
      attention_passes=1,
  )


def _placed(params: nnx.State, mesh: jax.sharding.Mesh) -> nnx.State:
  """Shapes of parameters, laid out as each was created to be."""

  def place(variable: nnx.Param) -> nnx.Param:
    spec = variable.get_metadata()["out_sharding"]
    value = variable.get_value()
    return variable.replace(
        jax.ShapeDtypeStruct(
            value.shape, value.dtype, sharding=jax.NamedSharding(mesh, spec)
        )
    )

  return jax.tree.map(
      place, params, is_leaf=lambda x: isinstance(x, nnx.Variable)
  )


def _batch(
    rows: int, time: int, mesh: jax.sharding.Mesh, kl: Any
) -> dict[str, jax.ShapeDtypeStruct]:
  """What `collate` makes of rows whose every token is trained, as shapes."""
  columns = collate([Row(**empty_row(time))], time)
  if kl is not None and kl.kl_coef:
    columns["reference_logprobs"] = columns["old_logprobs"]
  return {
      name: jax.ShapeDtypeStruct(
          (rows, *value.shape[1:]),
          value.dtype,
          sharding=jax.NamedSharding(mesh, BATCH),
      )
      for name, value in columns.items()
  }


def _bytes(tree: Any) -> int:
  """Of one device's shards."""
  return sum(
      math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
      for leaf in jax.tree.leaves(tree)
  )
