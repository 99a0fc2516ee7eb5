"""The attention of training rows: query i sees key j if and only if j <= i < end[j].

`tree_attention` is the one function of training: packed sequences and trajectory
trees are both cases of its mask. Behind it is what computes it where:

  platform  rows             computed by
  TPU       flat             splash attention of jax's Pallas ops
  TPU       trees            `tree_kernel`, a Pallas kernel
  GPU       flat             tokamax, where it is installed
  CPU       short            `short`, few blocks unrolled
  any       all others       `blockwise`, memory linear in the length

On a mesh each device attends with the rows of its part of `data` and `fsdp` and
the heads of its part of `tensor`. Over `context` the queries are split and the
keys gathered; which queries a device has is settled by `parallel.context`, and
the kernels of trees compute it, flat or not.

A `Window` bounds how far back a query sees, by distance in positions and so
along its own path in a tree. Keys out of it are masked, not skipped: which they
are is an input of a scanned layer.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from clawgym_jax import parallel
from clawgym_jax.models.layers.attention import (
    blockwise,
    libraries,
    short,
    tree_kernel,
)
from clawgym_jax.models.layers.attention.scores import Part, PartWindow
from clawgym_jax.parallel import context

_QUERY = jax.P(("data", "fsdp"), "tensor", None, "context", None)
_KEY = jax.P(("data", "fsdp"), "tensor", "context", None)
_ROW = jax.P(("data", "fsdp"), None)


class Window(NamedTuple):
  """How far back queries see: positions[i] - positions[j] < size.

  positions int32 [batch, time], size an int32 scalar.
  """

  positions: jax.Array
  size: jax.Array


def tree_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    end: jax.Array,
    dtype: jnp.dtype,
    *,
    scale: float | None = None,
    window: Window | None = None,
    flat: bool = False,
) -> jax.Array:
  """Query i sees key j if and only if j <= i < end[j] and j is in the window.

  Args:
    query: [batch, time, heads, dim].
    key, value: [batch, time, kv_heads, dim].
    end: int32 [batch, time], larger than its index: a query sees itself.
    dtype: of the operands of products; sums and softmax are float32.
    scale: of the scores; dim ** -0.5 where absent.
    window: how far back a query sees; None for all of its path.
    flat: no row is a tree: a library's kernel may do.

  On a mesh whose axis `context` is not 1, time is in `parallel.context`'s order
  but for `end`, which is in the row's, and so are the window's positions.

  Returns:
    [batch, time, heads, dim]: float32, or `dtype` where a Pallas kernel gives it.
  """
  batch, time, heads, dim = query.shape
  scale = dim**-0.5 if scale is None else scale
  key, value = (_shared(x, heads) for x in (key, value))
  query = (query.astype(jnp.float32) * scale).astype(dtype).transpose(0, 2, 1, 3)
  query = query.reshape(batch, key.shape[2], -1, time, dim)
  key = key.astype(dtype).transpose(0, 2, 1, 3)
  value = value.astype(dtype).transpose(0, 2, 1, 3)
  out = _attend(query, key, value, end, window, flat)
  return out.reshape(batch, heads, time, dim).transpose(0, 2, 1, 3)


def _shared(x: jax.Array, heads: int) -> jax.Array:
  """Key heads repeated until `tensor` splits them, if it splits `heads`."""
  tensor = parallel.axis_size("tensor")
  if heads % tensor or x.shape[2] % tensor == 0:
    return x
  return jnp.repeat(x, tensor // x.shape[2], axis=2)


def _attend(query, key, value, end, window, flat):
  """query [batch, kv, groups, time, dim], key and value [batch, kv, time, dim]."""
  whole = Part(query, key, value, end, jnp.zeros(1, jnp.int32), window)
  split = parallel.axis_size("context") > 1
  platform = parallel.platform()
  if flat and window is None and not split:
    if platform == "tpu" and libraries.splash_fits(whole):
      return _by_library(libraries.splash_attention)(query, key, value, end)
    if platform == "gpu" and libraries.tokamax():
      return _by_library(libraries.tokamax_attention)(query, key, value, end)
  return _trees(query, key, value, end, window)


def _by_library(kernel: Callable[[Part], jax.Array]) -> Callable[..., jax.Array]:
  """A library's kernel over a mesh, by JAX's gradient of it."""

  def whole(query, key, value, end):
    return kernel(Part(query, key, value, end, jnp.zeros(1, jnp.int32), None))

  return parallel.on_mesh(whole, (_QUERY, _KEY, _KEY, _ROW), _QUERY)


@jax.custom_vjp
def _trees(query, key, value, end, window):
  return _trees_forward(query, key, value, end, window)[0]


def _trees_forward(query, key, value, end, window):
  def forward(query, key, value, end, window):
    part = _part(query, key, value, end, window)
    return _path(part).forward(part)

  specs = (_QUERY, _KEY, _KEY, _ROW, _window_spec(window))
  attend = parallel.on_mesh(forward, specs, (_QUERY, _QUERY))
  out, logsumexp = attend(query, key, value, end, window)
  # What remat by name keeps, so that a backward pass need not attend again.
  out = checkpoint_name(out, "attention")
  logsumexp = checkpoint_name(logsumexp, "attention")
  return out, (query, key, value, end, window, out, logsumexp)


def _trees_backward(saved, grad):
  query, key, value, end, window, out, logsumexp = saved
  inner = jnp.sum(grad.astype(jnp.float32) * out, axis=-1, keepdims=True)

  def backward(query, key, value, end, window, logsumexp, grad, inner):
    part = _part(query, key, value, end, window)
    dquery, *sums = _path(part).backward(part, logsumexp, grad, inner)
    if parallel.axis_size("context") > 1:
      sums = [context.scatter_sum(x, axis=2) for x in sums]
    return (
        dquery.astype(query.dtype),
        *(x.astype(key.dtype) for x in sums),
    )

  specs = (_QUERY, _KEY, _KEY, _ROW, _window_spec(window), _QUERY, _QUERY, _QUERY)
  gradients = parallel.on_mesh(backward, specs, (_QUERY, _KEY, _KEY))
  found = gradients(query, key, value, end, window, logsumexp, grad, inner)
  return (*found, None, None)


_trees.defvjp(_trees_forward, _trees_backward)


def _part(query, key, value, end, window) -> Part:
  """What one device computes, from its shards of the operands."""
  starts = jnp.zeros(1, jnp.int32)
  queries = keys = None if window is None else window.positions
  if parallel.axis_size("context") > 1:
    starts = context.starts(end.shape[1])
    key, value = (context.gather(x, axis=2) for x in (key, value))
    if window is not None:
      run = query.shape[3] // starts.shape[0]
      queries = keys[:, (starts[:, None] + jnp.arange(run)).reshape(-1)]
  if window is not None:
    window = PartWindow(queries, keys, window.size)
  return Part(query, key, value, end, starts, window)


def _path(part: Part) -> ModuleType:
  """The module that computes a part here."""
  platform = parallel.platform()
  if platform == "tpu" and tree_kernel.fits(part):
    return tree_kernel
  whole = part.query.shape[3] == part.key.shape[2]
  if platform == "cpu" and whole and part.key.shape[2] <= short.LONGEST:
    return short
  return blockwise


def _window_spec(window: Window | None) -> Any:
  return None if window is None else Window(_ROW, jax.P())
