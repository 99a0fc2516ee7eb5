"""The loss on chats that are held out, the same batches each time."""

from __future__ import annotations

import jax
import numpy as np
from flax import nnx

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.configs.base import SftConfig
from clawgym_jax.data import corpus as corpora
from clawgym_jax.data.pipeline import Batches
from clawgym_jax.sft.feed import over_processes, split
from clawgym_jax.sft.scores import Batch, supervised_loss
from clawgym_jax.sft.setup import place


class Evaluation:
  """Negative log-likelihood a token of all of `config.evaluation.chats`."""

  def __init__(
      self,
      config: SftConfig,
      tokenizer: Tokenizer,
      graphdef: nnx.GraphDef,
      mesh: jax.sharding.Mesh | None,
  ):
    sources = corpora.open_sources(config.evaluation.chats)
    corpus = corpora.load(sources, tokenizer, config.data)
    batches = Batches(  # no mixture: every row once
        corpus.sequences,
        row_length=config.data.row_length,
        batch_rows=config.data.batch_rows,
        seed=0,
        share_prefixes=config.data.share_prefixes,
        window=config.data.window,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
    )
    self._parts = []
    count = len(batches.plan)  # of all processes; rows after those are there again
    for start in range(0, count, config.data.batch_rows):
      rows = next(batches)
      number = np.arange(start, start + config.data.batch_rows)
      fresh = (number < count)[jax.process_index() :: jax.process_count()]
      rows["weight"] = np.where(fresh[:, None], rows["weight"], 0)
      self._parts += split(rows, config.micro_batches)
    self._mesh = mesh

    def loss(params: nnx.State, batch: Batch) -> jax.Array:
      return supervised_loss(nnx.merge(graphdef, params), batch)[1]["loss"]

    self._loss = jax.jit(loss)

  def loss(self, params: nnx.State) -> float:
    """Nats a token."""
    total = sum(float(self._loss(params, place(p, self._mesh))) for p in self._parts)
    weight = sum(float(part["weight"].sum()) for part in self._parts)
    return total / over_processes({"weight": weight})["weight"]
