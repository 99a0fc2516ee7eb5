"""Kernels of libraries for flat rows, whose segments a library's mask can say.

In a flat row `end` is one number all through a segment and another in each: it
tells segments apart, and padding, each token of which is a segment of its own.

tokamax's mask has a bound by key too, `q_end`, but its releases to 0.0.17 expand
that to time x time before a kernel runs: trees are not for it.
"""

from __future__ import annotations

from types import ModuleType

import jax
import jax.numpy as jnp

from clawgym_jax.models.layers.attention.scores import Part

_LANES = 128
_BLOCKS = (512, 256, 128)


def splash_fits(part: Part) -> bool:
  """Whether splash attention takes rows of this length and head size."""
  return part.query.shape[3] % _LANES == 0


def splash_attention(part: Part, *, interpret: bool = False) -> jax.Array:
  """jax's splash attention for TPUs, with its own gradient, of whole flat rows.

  The result is as the query.
  """
  from jax.experimental.pallas.ops.tpu.splash_attention import (
      splash_attention_kernel as splash,
  )
  from jax.experimental.pallas.ops.tpu.splash_attention import (
      splash_attention_mask as masks,
  )

  batch, kv_heads, groups, time, dim = part.query.shape
  size = next(size for size in _BLOCKS if time % size == 0)
  names = ("block_q", "block_kv", "block_kv_compute")
  names += ("block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute")
  # One kernel for all gradients would hold one of the queries for each key block.
  names += ("block_q_dq", "block_kv_dq")
  kernel = splash.make_splash_mha_single_device(
      masks.MultiHeadMask([masks.CausalMask((time, time))] * (kv_heads * groups)),
      block_sizes=splash.BlockSizes(**dict.fromkeys(names, size)),
      interpret=interpret,
  )
  query = part.query.reshape(batch, -1, time, dim)
  segments = splash.SegmentIds(part.end, part.end)
  out = jax.vmap(kernel)(query, part.key, part.value, segments)
  return out.reshape(part.query.shape)


def tokamax() -> ModuleType | None:
  """The library, where it is installed."""
  try:
    import tokamax
  except ImportError:
    return None
  return tokamax


def tokamax_attention(part: Part, *, implementation: str | None = None) -> jax.Array:
  """tokamax's attention for GPUs, with its own gradient, of whole flat rows.

  The result is as the query.
  """
  batch, kv_heads, groups, time, dim = part.query.shape
  places = jnp.arange(time)
  ends = jnp.pad(part.end[:, :-1], ((0, 0), (1, 0)))
  starts = jax.lax.cummax(jnp.where(ends == places, places, 0), axis=1)
  query = part.query.reshape(batch, -1, time, dim)
  out = tokamax().dot_product_attention(
      *(x.swapaxes(1, 2) for x in (query, part.key, part.value)),
      scale=1.0,
      # As many places before each query, and none after it.
      local_window_size=((places - starts)[:, None], 0),
      implementation=implementation,
  )
  return out.swapaxes(1, 2).reshape(part.query.shape)
