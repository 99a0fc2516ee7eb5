"""What the engine's programs compute, as pure functions of weights and cache.

`Programs` compiles them and holds the cache; `clawgym_jax.compile` compiles them
for hardware that is not here.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from clawgym_jax.models.cache import KVCache
from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.serve.requests import MAX_STOP_IDS
from clawgym_jax.serve.sampling import sample

Params = tuple[jax.Array, ...]
"""The weights served, flat: flattening a module a call costs milliseconds."""


class DecodeInput(NamedTuple):
  """What one decode call needs, a row a slot.

  Attributes:
    tokens, positions: int32 [slots], the last token of each and its position.
    remaining: int32 [slots], tokens it may still sample; 0 where none runs.
    keys: uint32 [slots, 2].
    temperature, top_p: float32 [slots].
    stop_ids: int32 [slots, MAX_STOP_IDS], -1 where unused.
  """

  tokens: np.ndarray
  positions: np.ndarray
  remaining: np.ndarray
  keys: np.ndarray
  temperature: np.ndarray
  top_p: np.ndarray
  stop_ids: np.ndarray

  @classmethod
  def empty(cls, slots: int) -> DecodeInput:
    return cls(
        tokens=np.zeros(slots, np.int32),
        positions=np.zeros(slots, np.int32),
        remaining=np.zeros(slots, np.int32),
        keys=np.zeros((slots, 2), np.uint32),
        temperature=np.ones(slots, np.float32),
        top_p=np.ones(slots, np.float32),
        stop_ids=np.full((slots, MAX_STOP_IDS), -1, np.int32),
    )


class Sampled(NamedTuple):
  """Of one decode call: [steps, slots] each; only the first `counts` are real."""

  tokens: np.ndarray
  logprobs: np.ndarray
  untempered_logprobs: np.ndarray
  counts: np.ndarray  # int32 [slots]


class Steps:
  """Functions of one model and one shape of cache.

  Args:
    graphdef: of the model, see `create.serving_graphdef`.
    tree: of its parameters, which are passed flat.
    slots: rows of the cache.
    max_len: places of a row, the one for padding included.
    steps: most decode steps a call.
  """

  def __init__(
      self,
      graphdef: nnx.GraphDef,
      tree: jax.tree_util.PyTreeDef,
      *,
      slots: int,
      max_len: int,
      steps: int,
  ):
    self._graphdef = graphdef
    self._tree = tree
    self._slots = slots
    self._max_len = max_len
    self._steps = steps

  def _model(self, params: Params) -> CausalLM:
    return nnx.merge(self._graphdef, jax.tree.unflatten(self._tree, params))

  def copy(self, cache: KVCache, source: jax.Array, target: jax.Array) -> KVCache:
    """The cache with one row in the place of another."""
    return jax.tree.map(lambda leaf: leaf.at[target].set(leaf[source]), cache)

  def prefill(
      self,
      params: Params,
      cache: KVCache,
      tokens: jax.Array,
      positions: jax.Array,
      rows: jax.Array,
  ) -> KVCache:
    """The cache with [rows, width] tokens in it."""
    model = self._model(params)
    return model(tokens, positions, cache=cache, rows=rows)[1]

  def decode(
      self, params: Params, cache: KVCache, batch: DecodeInput, hurry: jax.Array
  ) -> tuple[KVCache, Sampled]:
    """Up to `steps` tokens for every slot; `hurry`: until one slot is done."""
    model = self._model(params)
    shape = (self._steps, self._slots)

    def unfinished(carry) -> jax.Array:
      step, active = carry[0], carry[1]
      done = (batch.remaining > 0) & ~active
      return (step < self._steps) & active.any() & ~(hurry & done.any())

    def body(carry):
      step, active, cache, token, position, counts, columns = carry
      at = jnp.where(active, position, self._max_len - 1)
      hidden, cache = model(token[:, None], at[:, None], cache=cache)
      drawn = sample(
          model.logits(hidden[:, 0]),
          batch.keys,
          position,
          batch.temperature,
          batch.top_p,
      )
      columns = tuple(
          column.at[step].set(value) for column, value in zip(columns, drawn)
      )
      token = jnp.where(active, drawn[0], token)
      counts = counts + active
      stopped = (token[:, None] == batch.stop_ids).any(axis=1)
      position = position + active
      active = active & ~stopped & (counts < batch.remaining)
      return step + 1, active, cache, token, position, counts, columns

    columns = (
        jnp.zeros(shape, jnp.int32),
        jnp.zeros(shape, jnp.float32),
        jnp.zeros(shape, jnp.float32),
    )
    carry = (
        jnp.int32(0),
        batch.remaining > 0,
        cache,
        batch.tokens,
        batch.positions,
        jnp.zeros(self._slots, jnp.int32),
        columns,
    )
    carry = jax.lax.while_loop(unfinished, body, carry)
    return carry[2], Sampled(*carry[6], carry[5])
