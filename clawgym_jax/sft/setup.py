"""What a run starts from: its model, its mesh, and batches laid out on it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from clawgym_jax.chat import vocabulary
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.checkpoints import hf, peft, state
from clawgym_jax.checkpoints import source as checkpoint
from clawgym_jax.checkpoints.orbax import Checkpoints
from clawgym_jax.configs.base import Lora, Mesh, ModelSource, Saving
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.models import create
from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.models.layers.lora import LoraConfig
from clawgym_jax.models.rope_scaling import RopeScaling
from clawgym_jax.parallel.mesh import BATCH, make_mesh


def load_model(
    source: ModelSource,
    texts: Callable[[], Iterable[str]],
    seed: int,
    *,
    flat_rows: bool = False,
) -> tuple[CausalLM, Tokenizer]:
  """The model with float32 parameters, and its vocabulary.

  `texts` gives what the vocabulary of a `tiny` model is trained on. `flat_rows`: no
  row that it will be trained on is a tree.
  """
  kw = {
      "compute_dtype": jnp.dtype(source.compute_dtype),
      "remat": source.remat,
      "flat_rows": flat_rows,
      "unroll": unrolling(source),
      "lora": adapters(source.lora),
  }
  if source.yarn_factor > 1:
    kw["rope_scaling"] = RopeScaling.from_hf(
        {"rope_type": "yarn", "factor": source.yarn_factor}, source.yarn_length
    )
  if source.source == "tiny":
    if source.yarn_factor > 1:
      raise UserError("model.yarn_factor stretches a trained context: `tiny` has none")
    tokenizer = vocabulary.train(texts(), source.vocab_size)
    return create.tiny_qwen3(tokenizer.vocab_size, seed=seed, **kw), tokenizer
  return checkpoint.load(
      source.source, flag="--config.model.source", also=("tiny",), **kw
  )


def unrolling(source: ModelSource) -> bool | None:
  """`CausalLM`'s `unroll`."""
  return {"auto": None, "loop": False, "unrolled": True}[source.layers]


def adapters(lora: Lora) -> LoraConfig | None:
  if not lora.rank:
    return None
  return LoraConfig(
      rank=lora.rank, alpha=lora.alpha, targets=tuple(lora.targets.split(","))
  )


def described(model: CausalLM) -> dict[str, Any]:
  """The model's config as saved states hold it: with its adapters' settings."""
  adapters = {} if model.lora is None else {"lora": dataclasses.asdict(model.lora)}
  return model.config.to_hf() | adapters


def states(out: Path, saving: Saving) -> Checkpoints:
  """The saved states of the run in `out`."""
  return Checkpoints(
      out / "checkpoints",
      keep=saving.keep,
      keep_every=saving.keep_every,
      keep_best=saving.keep_best,
  )


def hand_over(
    out: Path, model: CausalLM, tokenizer: Tokenizer, saves: Checkpoints, base: str
) -> None:
  """Writes hf/, the whole model, and adapter/ where adapters were trained."""
  hf.save(out / "hf", model, tokenizer)
  if model.lora is not None:
    peft.write(out / "adapter", state.adapter(saves, base))


@contextlib.contextmanager
def mesh_of(config: Mesh, rows: int) -> Iterator[jax.sharding.Mesh | None]:
  """The mesh over all devices, in use while the block runs; None on one device.

  `rows` are those of a micro-batch, which the mesh must be able to split.
  """
  mesh = make_mesh(
      data=config.data,
      fsdp=config.fsdp,
      expert=config.expert,
      context=config.context,
      tensor=config.tensor,
  )
  if mesh.size == 1:
    yield None
    return
  shards = mesh.shape["data"] * mesh.shape["fsdp"]
  if rows % shards:
    raise UserError(
        f"{rows} rows of a micro-batch can't be split over {shards} devices: make"
        " them a multiple, or change mesh.data and mesh.fsdp"
    )
  with jax.set_mesh(mesh):
    yield mesh


def place(
    batch: dict[str, np.ndarray], mesh: jax.sharding.Mesh | None
) -> dict[str, jax.Array]:
  """This process's rows, [rows, ...] each, as arrays over the whole mesh."""
  if mesh is None:
    return jax.device_put(batch)
  sharding = jax.sharding.NamedSharding(mesh, BATCH)
  return {
      name: jax.make_array_from_process_local_data(sharding, value)
      for name, value in batch.items()
  }
