"""The three device programs of the engine: copy a row, prefill, decode.

Each takes the cache by donation and gives it back. All their shapes are
compiled by `warm_up`; after it, `recompiles` counts what the calling thread
compiled all the same, and stays 0. Prefill only fills the cache: the last
prompt token is read by the first decode step, so the head runs in one place.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from clawgym_jax.models.cache import init_cache
from clawgym_jax.models.config import ModelConfig
from clawgym_jax.models.create import serving_graphdef, serving_params
from clawgym_jax.models.layers.lora import LoraConfig
from clawgym_jax.parallel.compiles import CompileCount
from clawgym_jax.serve.slots import Copy, Prefill
from clawgym_jax.serve.steps import DecodeInput, Params, Sampled, Steps


class Programs:
  """Compiled programs over one cache.

  Args:
    config: of the model.
    compute_dtype: of matrix operands, of the weights served and of the cache.
    slots: rows of the cache.
    max_len: places of a row, the one for padding included.
    steps: most decode steps a call.
    prefill_shapes: [rows, width] of prefill calls; rows at most `slots`.
  """

  def __init__(
      self,
      config: ModelConfig,
      compute_dtype: jnp.dtype,
      *,
      lora: LoraConfig | None = None,
      slots: int,
      max_len: int,
      steps: int,
      prefill_shapes: Sequence[tuple[int, int]],
  ):
    self.slots = slots
    self.max_len = max_len
    self.steps = steps
    self.prefill_shapes = tuple(prefill_shapes)
    # Committed from the start: placement is part of a compiled program's key.
    self._sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    self._cache = jax.device_put(
        init_cache(config, slots, max_len, compute_dtype), self._sharding
    )
    self._graphdef = serving_graphdef(config, compute_dtype)
    self._tree = None  # set by the first `convert`
    # Copies even where the dtype stays: the trainer may donate its own arrays.
    self._convert_jit = jax.jit(
        lambda params: jax.tree.map(
            jnp.copy, serving_params(params, compute_dtype, lora)
        )
    )
    self._compiles: CompileCount | None = None  # from `warm_up` on

  def convert(self, params: nnx.State) -> Params:
    """Training parameters as they are served: cast, one array a layer, flat.

    Raises ValueError where they are not those of the model served.
    """
    leaves, tree = jax.tree.flatten(self._convert_jit(params))
    shapes = [(leaf.shape, leaf.dtype) for leaf in leaves]
    if self._tree is None:
      self._tree, self._shapes = tree, shapes
      self._compile_from(tree)
    if (tree, shapes) != (self._tree, self._shapes):
      raise ValueError("the new weights are not those of the model served")
    return tuple(jax.device_put(leaves, self._sharding))

  def _compile_from(self, tree: jax.tree_util.PyTreeDef) -> None:
    functions = Steps(
        self._graphdef,
        tree,
        slots=self.slots,
        max_len=self.max_len,
        steps=self.steps,
    )
    self._copy_jit = jax.jit(functions.copy, donate_argnums=0)
    self._prefill_jit = jax.jit(functions.prefill, donate_argnums=1)
    self._decode_jit = jax.jit(functions.decode, donate_argnums=1)

  def warm_up(self, params: Params) -> None:
    """Compiles every shape, by running it on rows that no request owns.

    Call it from the thread that will use the programs: a thread's mesh and
    other context are part of a compiled program's key, and compiles are
    counted by thread.
    """
    self.copy(Copy(0, 0, 0))
    for shape in self.prefill_shapes:
      call = Prefill(
          slots=np.arange(shape[0], dtype=np.int32),
          tokens=np.zeros(shape, np.int32),
          positions=np.full(shape, self.max_len - 1, np.int32),
          counts=(),
      )
      self.prefill(params, call)
    self.decode(params, DecodeInput.empty(self.slots), hurry=False)
    jax.block_until_ready(self._cache)
    self._compiles = CompileCount()

  @property
  def recompiles(self) -> int:
    """What the engine's thread compiled since `warm_up`."""
    return self._compiles.count if self._compiles else 0

  def copy(self, copy: Copy) -> None:
    """The whole row, so that one shape serves; what lies past `length` is dead."""
    self._cache = self._copy_jit(
        self._cache, np.int32(copy.source), np.int32(copy.target)
    )

  def prefill(self, params: Params, call: Prefill) -> None:
    self._cache = self._prefill_jit(
        params, self._cache, call.tokens, call.positions, call.slots
    )

  def decode(self, params: Params, batch: DecodeInput, *, hurry: bool) -> Sampled:
    """Up to `steps` tokens for every slot with some remaining.

    Args:
      hurry: come back as soon as one slot is done, because others wait for it.
    """
    self._cache, sampled = self._decode_jit(
        params, self._cache, batch, np.bool_(hurry)
    )
    return Sampled(*jax.device_get(sampled))
