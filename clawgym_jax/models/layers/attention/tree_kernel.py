"""Attention to trajectory trees on a TPU: a Pallas kernel, forward and backward.

No library's kernel has a bound by key that is known at run time only: splash
attention takes segments, and tokamax expands `q_end` to time x time. The mask
j <= i < end[j] is computed in the kernel from `end`, so nothing quadratic is ever
stored; blocks of keys that no query of a block sees are neither read nor
multiplied. The running softmax and the recomputed gradient are those of
arXiv:2205.14135. What is expected of a TPU: rows of a multiple of 128 tokens.

Every block of queries has an index of its own at which it starts, so the
queries may be any runs of a row, as under context parallelism.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from clawgym_jax.models.layers.attention.scores import MASKED, Part

_LANES = 128
_ROWS = 1024
"""Most rows of scores at a time: queries times the heads that share their key."""
_SCORES = 1024 * 512
"""Most scores at a time, float32: a few such blocks are in the core's memory."""
_SEMANTICS = ("parallel", "parallel", "parallel", "arbitrary")


class _Blocks(NamedTuple):
  """How a part is cut, and which blocks meet; the arrays are prefetched scalars.

  Attributes:
    queries, keys: of a block.
    at: int32 [query blocks], the index that each starts at.
    first: int32 [batch, query blocks], the first key block that one sees.
    last: int32 [query blocks], the last one.
    reach: int32 [batch, key blocks], the largest `end` of each.
    start, stop: int32 [key blocks] and [batch, key blocks], the first query block
      that sees one, and the last that may.
  """

  queries: int
  keys: int
  at: jax.Array
  first: jax.Array
  last: jax.Array
  reach: jax.Array
  start: jax.Array
  stop: jax.Array

  @classmethod
  def of(cls, part: Part) -> _Blocks:
    run = part.query.shape[3] // part.starts.shape[0]
    queries = _size(run, max(_LANES, _ROWS // part.query.shape[2]))
    rows = part.query.shape[2] * queries
    keys = _size(part.key.shape[2], max(_LANES, _SCORES // rows))
    at = part.indices[::queries]
    batch = part.end.shape[0]
    reach = jnp.max(part.end.reshape(batch, -1, keys), axis=2)
    begins = jnp.arange(reach.shape[1]) * keys
    sees = reach[:, None] > at[:, None]  # [batch, query blocks, key blocks]
    after = at + queries > begins[:, None]  # [key blocks, query blocks]
    before = at < reach[..., None]  # [batch, key blocks, query blocks]
    last = (at + queries - 1) // keys
    return cls(
        queries=queries,
        keys=keys,
        at=at,
        first=jnp.minimum(jnp.argmax(sees, axis=2), last).astype(jnp.int32),
        last=last.astype(jnp.int32),
        reach=reach,
        start=jnp.where(after.any(1), jnp.argmax(after, 1), len(at) - 1).astype(
            jnp.int32
        ),
        stop=jnp.maximum(jnp.sum(before, axis=2) - 1, 0).astype(jnp.int32),
    )

  @property
  def scalars(self) -> tuple[jax.Array, ...]:
    return self[2:]


def fits(part: Part) -> bool:
  """Whether the kernel takes rows of this length, and has no window to mind."""
  run = part.query.shape[3] // part.starts.shape[0]
  return part.window is None and run % _LANES == part.key.shape[2] % _LANES == 0


def forward(part: Part, *, interpret: bool = False) -> tuple[jax.Array, jax.Array]:
  """The result, as the query, and its log-sum-exp, float32 [..., 1]."""
  blocks = _Blocks.of(part)
  batch, kv_heads, groups, time, dim = part.query.shape
  rows = groups * blocks.queries
  of_query, of_row, of_key, of_end = _specs(part, blocks, keys_inside=True)
  out, logsumexp = pl.pallas_call(
      partial(_forward, blocks.queries),
      grid_spec=pltpu.PrefetchScalarGridSpec(
          num_scalar_prefetch=len(blocks.scalars),
          grid=(batch, kv_heads, len(blocks.at), blocks.reach.shape[1]),
          in_specs=[of_query, of_key, of_key, of_end],
          out_specs=[of_query, of_row],
          scratch_shapes=[
              pltpu.VMEM((rows, _LANES), jnp.float32),
              pltpu.VMEM((rows, _LANES), jnp.float32),
              pltpu.VMEM((rows, dim), jnp.float32),
          ],
      ),
      out_shape=[
          jax.ShapeDtypeStruct(part.query.shape, part.query.dtype),
          _row_shape(part, blocks),
      ],
      compiler_params=pltpu.CompilerParams(dimension_semantics=_SEMANTICS),
      interpret=interpret,
      name="tree_attention",
  )(*blocks.scalars, part.query, part.key, part.value, part.end[:, None])
  return out, _from_rows(logsumexp, part)


def backward(
    part: Part,
    logsumexp: jax.Array,
    grad: jax.Array,
    inner: jax.Array,
    *,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Gradients of query, key and value, as those; see `short.backward`."""
  blocks = _Blocks.of(part)
  batch, kv_heads, groups, _, dim = part.query.shape
  rows = groups * blocks.queries
  sums = _to_rows(logsumexp, part, blocks), _to_rows(inner, part, blocks)
  operands = (
      part.query, part.key, part.value, part.end[:, None],
      grad.astype(part.query.dtype), *sums,
  )  # fmt: skip
  common = {
      "compiler_params": pltpu.CompilerParams(dimension_semantics=_SEMANTICS),
      "interpret": interpret,
  }
  of_query, of_row, of_key, of_end = _specs(part, blocks, keys_inside=True)
  dquery = pl.pallas_call(
      partial(_backward_query, blocks.queries),
      grid_spec=pltpu.PrefetchScalarGridSpec(
          num_scalar_prefetch=len(blocks.scalars),
          grid=(batch, kv_heads, len(blocks.at), blocks.reach.shape[1]),
          in_specs=[of_query, of_key, of_key, of_end, of_query, of_row, of_row],
          out_specs=of_query,
          scratch_shapes=[
              pltpu.VMEM((rows, _LANES), jnp.float32),
              pltpu.VMEM((rows, _LANES), jnp.float32),
              pltpu.VMEM((rows, dim), jnp.float32),
          ],
      ),
      out_shape=jax.ShapeDtypeStruct(part.query.shape, part.query.dtype),
      name="tree_attention_dquery",
      **common,
  )(*blocks.scalars, *operands)
  of_query, of_row, of_key, of_end = _specs(part, blocks, keys_inside=False)
  sum_shape = jax.ShapeDtypeStruct(part.key.shape, part.key.dtype)
  dkey, dvalue = pl.pallas_call(
      partial(_backward_key, blocks.queries),
      grid_spec=pltpu.PrefetchScalarGridSpec(
          num_scalar_prefetch=len(blocks.scalars),
          grid=(batch, kv_heads, blocks.reach.shape[1], len(blocks.at)),
          in_specs=[of_query, of_key, of_key, of_end, of_query, of_row, of_row],
          out_specs=[of_key, of_key],
          scratch_shapes=[
              pltpu.VMEM((blocks.keys, _LANES), jnp.float32),
              pltpu.VMEM((blocks.keys, dim), jnp.float32),
              pltpu.VMEM((blocks.keys, dim), jnp.float32),
          ],
      ),
      out_shape=[sum_shape, sum_shape],
      name="tree_attention_dkey",
      **common,
  )(*blocks.scalars, *operands)
  return dquery, dkey, dvalue


def _forward(
    queries, at, first, last, reach, start, stop,
    query, key, value, end, out, logsumexp, top, total, sums,
):  # fmt: skip
  """One block of queries, and the next of the keys that it may see."""
  del first, start, stop
  batch, block, index = pl.program_id(0), pl.program_id(2), pl.program_id(3)

  @pl.when(index == 0)
  def _():
    top[...] = jnp.full_like(top, MASKED)
    total[...] = jnp.zeros_like(total)
    sums[...] = jnp.zeros_like(sums)

  @pl.when((index <= last[block]) & (reach[batch, index] > at[block]))
  def _():
    scores = _dot(_rows(query), key[0, 0], 1)
    mask = _mask(queries, scores.shape, 0, at[block], index, end[0])
    scores = jnp.where(mask, scores, MASKED)
    old = top[:, :1]
    new = jnp.maximum(old, jnp.max(scores, axis=1, keepdims=True))
    weights = jnp.exp(scores - new)
    scale = jnp.exp(old - new)
    added = scale * total[:, :1] + jnp.sum(weights, axis=1, keepdims=True)
    top[...] = jnp.broadcast_to(new, top.shape)
    total[...] = jnp.broadcast_to(added, total.shape)
    seen = _dot(weights.astype(value.dtype), value[0, 0], 0)
    sums[...] = scale * sums[...] + seen

  @pl.when(index == pl.num_programs(3) - 1)
  def _():
    out[...] = (sums[...] / total[:, :1]).astype(out.dtype).reshape(out.shape)
    logsumexp[...] = (top[...] + jnp.log(total[...])).T[:1].reshape(logsumexp.shape)


def _backward_query(
    queries, at, first, last, reach, start, stop,
    query, key, value, end, grad, logsumexp, inner, dquery, level, mine, sums,
):  # fmt: skip
  """The gradient of one block of queries, from the next of the keys that it sees."""
  del first, start, stop
  batch, block, index = pl.program_id(0), pl.program_id(2), pl.program_id(3)

  @pl.when(index == 0)
  def _():
    level[...] = _column(logsumexp)
    mine[...] = _column(inner)
    sums[...] = jnp.zeros_like(sums)

  @pl.when((index <= last[block]) & (reach[batch, index] > at[block]))
  def _():
    scores = _dot(_rows(query), key[0, 0], 1)
    mask = _mask(queries, scores.shape, 0, at[block], index, end[0])
    weights = jnp.exp(jnp.where(mask, scores, MASKED) - level[:, :1])
    dscores = weights * (_dot(_rows(grad), value[0, 0], 1) - mine[:, :1])
    sums[...] += _dot(dscores.astype(key.dtype), key[0, 0], 0)

  @pl.when(index == pl.num_programs(3) - 1)
  def _():
    dquery[...] = sums[...].astype(dquery.dtype).reshape(dquery.shape)


def _backward_key(
    queries, at, first, last, reach, start, stop,
    query, key, value, end, grad, logsumexp, inner, dkey, dvalue, ends, dkeys, dvalues,
):  # fmt: skip
  """The gradients of one block of keys and values, from the next of the queries.

  Scores are transposed, so that no product has a transposed left operand.
  """
  del first, last
  batch, index, block = pl.program_id(0), pl.program_id(2), pl.program_id(3)

  @pl.when(block == 0)
  def _():
    # As float32, which moves and holds any index of a row.
    column = jnp.broadcast_to(end[0].astype(jnp.float32), (_LANES, ends.shape[0]))
    ends[...] = column.T
    dkeys[...] = jnp.zeros_like(dkeys)
    dvalues[...] = jnp.zeros_like(dvalues)

  sees = reach[batch, index] > at[block]
  sees &= at[block] + queries > index * ends.shape[0]

  @pl.when((block >= start[index]) & (block <= stop[batch, index]) & sees)
  def _():
    scores = _dot(key[0, 0], _rows(query), 1)
    reaches = ends[:, :1].astype(jnp.int32)
    mask = _mask(queries, scores.shape, 1, at[block], index, reaches)
    weights = jnp.exp(jnp.where(mask, scores, MASKED) - logsumexp[0, 0, 0])
    dvalues[...] += _dot(weights.astype(grad.dtype), _rows(grad), 0)
    dscores = weights * (_dot(value[0, 0], _rows(grad), 1) - inner[0, 0, 0])
    dkeys[...] += _dot(dscores.astype(query.dtype), _rows(query), 0)

  @pl.when(block == pl.num_programs(3) - 1)
  def _():
    dkey[...] = dkeys[...].astype(dkey.dtype).reshape(dkey.shape)
    dvalue[...] = dvalues[...].astype(dvalue.dtype).reshape(dvalue.shape)


def _mask(queries, shape, axis, at, index, end):
  """Which scores count; queries lie along `axis` of `shape`, heads outside them."""
  across = 1 - axis
  # A power of two, as blocks are: the remainder of an index in its block.
  query = at + (jax.lax.broadcasted_iota(jnp.int32, shape, axis) & (queries - 1))
  key = index * shape[across] + jax.lax.broadcasted_iota(jnp.int32, shape, across)
  return (key <= query) & (query < end)


def _dot(a: jax.Array, b: jax.Array, axis_b: int) -> jax.Array:
  """a's last axis with one of b's; float32."""
  return jax.lax.dot_general(
      a,
      b,
      (((1,), (axis_b,)), ((), ())),
      precision="highest" if a.dtype == jnp.float32 else None,
      preferred_element_type=jnp.float32,
  )


def _rows(block) -> jax.Array:
  """[1, 1, groups, queries, dim] -> [groups * queries, dim]."""
  return block[0, 0].reshape(-1, block.shape[-1])


def _column(row) -> jax.Array:
  """[1, 1, 1, 1, rows] -> [rows, lanes], each value along its lanes."""
  return jnp.broadcast_to(row[0, 0, 0], (_LANES, row.shape[-1])).T


def _size(length: int, most: int) -> int:
  """The largest power of two of lanes, at most `most`, that divides `length`."""
  size = _LANES
  while size * 2 <= most and length % (size * 2) == 0:
    size *= 2
  return size


def _specs(
    part: Part, blocks: _Blocks, *, keys_inside: bool
) -> tuple[pl.BlockSpec, ...]:
  """Of query blocks, of their rows of sums, of key blocks and of `end`.

  The inner axis of the grid goes over keys, or else over queries. A step that
  has nothing to do names the block that its neighbour reads, and nothing moves.
  """
  groups, dim = part.query.shape[2], part.query.shape[4]

  def of_query(batch, outer, inner, at, first, last, reach, start, stop):
    if keys_inside:
      return outer
    return jnp.clip(inner, start[outer], jnp.maximum(stop[batch, outer], start[outer]))

  def of_key(batch, outer, inner, at, first, last, reach, start, stop):
    if keys_inside:
      return jnp.clip(inner, first[batch, outer], last[outer])
    return outer

  def spec(shape, index):
    return pl.BlockSpec(
        shape, lambda b, h, o, i, *scalars: index(b, h, (b, o, i, *scalars))
    )

  return (
      spec(
          (1, 1, groups, blocks.queries, dim),
          lambda b, h, s: (b, h, 0, of_query(*s), 0),
      ),
      spec(
          (1, 1, 1, 1, groups * blocks.queries),
          lambda b, h, s: (b, h, of_query(*s), 0, 0),
      ),
      spec((1, 1, blocks.keys, dim), lambda b, h, s: (b, h, of_key(*s), 0)),
      spec((1, 1, blocks.keys), lambda b, h, s: (b, 0, of_key(*s))),
  )


def _row_shape(part: Part, blocks: _Blocks) -> jax.ShapeDtypeStruct:
  """One number a query as the kernel holds it: a row of lanes a block."""
  batch, kv_heads, groups = part.query.shape[:3]
  rows = groups * blocks.queries
  return jax.ShapeDtypeStruct((batch, kv_heads, len(blocks.at), 1, rows), jnp.float32)


def _to_rows(x: jax.Array, part: Part, blocks: _Blocks) -> jax.Array:
  """[batch, kv, groups, queries, 1] -> `_row_shape`."""
  x = x.reshape(*x.shape[:3], -1, blocks.queries)
  return x.swapaxes(2, 3).reshape(_row_shape(part, blocks).shape)


def _from_rows(x: jax.Array, part: Part) -> jax.Array:
  """The inverse of `_to_rows`."""
  batch, kv_heads, groups, time, _ = part.query.shape
  x = x.reshape(batch, kv_heads, x.shape[2], groups, -1).swapaxes(2, 3)
  return x.reshape(batch, kv_heads, groups, time, 1)
