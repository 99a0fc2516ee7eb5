"""Log-probabilities of given tokens, without ever holding [tokens, vocab].

Training and rollouts compute log-probabilities by this one rule: float32
log-softmax of `logits / temperature`. The logits of a chunk of positions exist
at a time, vocabulary first, and once more in the backward pass: that way each
product's large operand, the embedding or the logits' gradient, is read as it
lies in memory.

On a mesh each device scores the positions that lie on it. It gathers the
vectors of its part of the vocabulary (`tensor`) over `fsdp`, cast before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from clawgym_jax import parallel
from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.models.layers.linear import dot, swap_last

_TABLE = jax.P("tensor", "fsdp")
_ROW = jax.P(*parallel.HIDDEN[:2])

def token_logprobs(
    model: CausalLM,
    hidden: jax.Array,
    targets: jax.Array,
    temperature: float | jax.Array = 1.0,
    *,
    chunk: int = 512,
) -> jax.Array:
  """`token_scores` without the entropies: float32 as `targets`."""
  return _scores(model, hidden, targets, temperature, chunk, False)[0]


def token_scores(
    model: CausalLM,
    hidden: jax.Array,
    targets: jax.Array,
    temperature: float | jax.Array = 1.0,
    *,
    chunk: int = 512,
) -> tuple[jax.Array, jax.Array]:
  """Log-probability of `targets[n]` after `hidden[n]`, and the entropy there.

  Args:
    model: gives the head.
    hidden: [n, hidden] or [batch, n, hidden], the model's hidden states at the
      chosen positions. On a mesh the batch is split as rows are, and n over
      `context`, where they divide evenly.
    targets: int32 [n] or [batch, n], the tokens that followed.
    temperature: divides the logits; no gradient.
    chunk: most positions of a device whose logits exist at a time.

  Returns:
    Log-probabilities and entropies (nats; no gradient), float32 as `targets`.
  """
  return _scores(model, hidden, targets, temperature, chunk, True)


class _How(NamedTuple):
  """What is known when the scores are traced."""

  dtype: jnp.dtype
  chunk: int
  entropy: bool


def _scores(model, hidden, targets, temperature, chunk, entropy):
  if model.config.tie_word_embeddings:
    embedding = model.model.embed_tokens.weight[...]
  else:
    embedding = model.lm_head.weight[...]
  shape = targets.shape
  if targets.ndim == 1:
    hidden, targets = hidden[None], targets[None]
  how = _How(model.compute_dtype, chunk, entropy)
  temperature = jnp.asarray(temperature, jnp.float32)
  logprobs, entropies = _chunked(embedding, hidden, targets, temperature, how)
  return logprobs.reshape(shape), jax.lax.stop_gradient(entropies.reshape(shape))


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _chunked(embedding, hidden, targets, temperature, how):
  """embedding [vocab, hidden], hidden [batch, n, hidden], targets [batch, n]."""
  return _forward(embedding, hidden, targets, temperature, how)[0]


def _forward(embedding, hidden, targets, temperature, how):
  def local(table, hidden, targets, temperature):
    table = _gathered(table.astype(how.dtype))

    def one(pair):
      hidden, targets = pair
      logits = _logits(table, hidden, temperature, how.dtype)
      top = _over(jax.lax.pmax, jnp.max(logits, axis=0))
      weights = jnp.exp(logits - top)
      total = _over(jax.lax.psum, jnp.sum(weights, axis=0))
      logsumexp = top + jnp.log(total)
      targets, here = _targets(targets, table.shape[0])
      picked = jnp.take_along_axis(logits, targets[None], axis=0)[0]
      picked = _over(jax.lax.psum, jnp.where(here, picked, 0.0))
      spread = jnp.zeros_like(total)
      if how.entropy:
        mean = _over(jax.lax.psum, jnp.sum(weights * logits, axis=0)) / total
        spread = logsumexp - mean
      return picked - logsumexp, spread, logsumexp

    shape, size = targets.shape, targets.size
    chunks = tuple(_cut(x, size, how.chunk) for x in (hidden, targets))
    found = jax.lax.map(one, chunks)
    return tuple(x.reshape(-1)[:size].reshape(shape) for x in found)

  arguments = embedding, hidden, targets, temperature
  specs = _TABLE, parallel.HIDDEN, _ROW, jax.P()
  run = parallel.on_mesh(local, specs, (_ROW, _ROW, _ROW))
  logprobs, entropies, logsumexps = run(*arguments)
  return (logprobs, entropies), (*arguments, logsumexps)


def _backward(how, saved, grads):
  def local(table, hidden, targets, temperature, logsumexps, grad):
    kind, dtype = table.dtype, how.dtype
    table = _gathered(table.astype(dtype))
    across = swap_last(table)
    tokens = jnp.arange(table.shape[0])[:, None]

    def one(dtable, values):
      hidden, targets, logsumexp, grad = values
      logits = _logits(table, hidden, temperature, dtype)
      targets, here = _targets(targets, table.shape[0])
      hit = ((tokens == targets) & here).astype(jnp.float32)
      dlogits = (hit - jnp.exp(logits - logsumexp)) * (grad / temperature)
      dlogits = dlogits.astype(dtype)
      dhidden = swap_last(dot(across, dlogits, 1, 0, dtype))
      return dtable + dot(dlogits, hidden, 1, 0, dtype), dhidden

    size = targets.size
    chunks = tuple(
        _cut(x, size, how.chunk) for x in (hidden, targets, logsumexps, grad)
    )
    dtable, dhidden = jax.lax.scan(one, jnp.zeros(table.shape, jnp.float32), chunks)
    dhidden = dhidden.reshape(-1, hidden.shape[-1])[:size].reshape(hidden.shape)
    dhidden = _over(jax.lax.psum, dhidden)
    return _scattered(dtable, dtype, rows).astype(kind), dhidden.astype(hidden.dtype)

  rows = parallel.fitting(parallel.HIDDEN, saved[1].shape)
  specs = _TABLE, parallel.HIDDEN, _ROW, jax.P(), _ROW, _ROW
  run = parallel.on_mesh(local, specs, (_TABLE, parallel.HIDDEN))
  return (*run(*saved, grads[0]), None, None)


_chunked.defvjp(_forward, _backward)


def _logits(table, hidden, temperature, dtype):
  """Logits of one chunk, [vocab, size]."""
  return dot(table, hidden, 1, 1, dtype) / temperature


def _cut(x: jax.Array, size: int, chunk: int) -> jax.Array:
  """[batch, n, ...] with batch * n = size -> equal chunks of them, padded at the end."""
  chunks = -(-size // chunk)
  length = -(-size // chunks)
  x = x.reshape(size, *x.shape[2:])
  padding = ((0, chunks * length - size), *((0, 0),) * (x.ndim - 1))
  return jnp.pad(x, padding).reshape(chunks, length, *x.shape[1:])


def _meshed() -> bool:
  return not jax.sharding.get_abstract_mesh().empty


def _gathered(table: jax.Array) -> jax.Array:
  """A device's part of the vocabulary, its vectors whole."""
  if not _meshed():
    return table
  return jax.lax.all_gather(table, "fsdp", axis=1, tiled=True)


def _scattered(dtable: jax.Array, dtype: jnp.dtype, rows: jax.P) -> jax.Array:
  """What `_gathered` takes of a gradient, added up over the devices of other rows."""
  if not _meshed():
    return dtable
  axes = {axis for axes in rows if axes for axis in ((axes,) if isinstance(axes, str) else axes)}
  dtable = dtable.astype(dtype)
  if "fsdp" in axes:
    dtable = jax.lax.psum_scatter(dtable, "fsdp", scatter_dimension=1, tiled=True)
  else:
    size = dtable.shape[1] // parallel.axis_size("fsdp")
    start = jax.lax.axis_index("fsdp") * size
    dtable = jax.lax.dynamic_slice_in_dim(dtable, start, size, 1)
  return jax.lax.psum(dtable, tuple(sorted(axes - {"fsdp"})))


def _targets(targets: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
  """Where targets stand in this device's part of the vocabulary, and whether they do."""
  if _meshed():
    targets = targets - jax.lax.axis_index("tensor") * size
  here = (targets >= 0) & (targets < size)
  return jnp.where(here, targets, 0), here


def _over(reduce: Callable[..., jax.Array], x: jax.Array) -> jax.Array:
  """Put together over the parts of the vocabulary."""
  return reduce(x, "tensor") if _meshed() else x
