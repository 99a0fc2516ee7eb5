"""Log-probabilities of given tokens, without ever holding [tokens, vocab].

Training and rollouts compute log-probabilities by this one rule: float32
log-softmax of `logits / temperature`. The logits of a chunk of positions exist
at a time, vocabulary first, and once more in the backward pass: that way each
product's large operand, the embedding or the logits' gradient, is read as it
lies in memory. On a mesh it is blocks of the vocabulary (`vocabulary_blocks`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from clawgym_jax.models import vocabulary_blocks
from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.models.layers.linear import dot, swap_last


class TokenScores(NamedTuple):
  """What a model says of given tokens, float32 of one shape each.

  Attributes:
    logprobs: of the tokens, log-softmax of `logits / temperature`.
    entropies: of the distributions they are from, in nats; no gradient.
    logsumexps: of `logits / temperature`, which a z-loss keeps near 0.
  """

  logprobs: jax.Array
  entropies: jax.Array
  logsumexps: jax.Array


def token_logprobs(
    model: CausalLM,
    hidden: jax.Array,
    targets: jax.Array,
    temperature: float | jax.Array = 1.0,
    *,
    chunk: int = 512,
) -> jax.Array:
  """The log-probabilities of `token_scores` alone: float32 as `targets`."""
  return _scores(model, hidden, targets, temperature, chunk, False).logprobs


def token_scores(
    model: CausalLM,
    hidden: jax.Array,
    targets: jax.Array,
    temperature: float | jax.Array = 1.0,
    *,
    chunk: int = 512,
) -> TokenScores:
  """The scores of `targets[n]` after `hidden[n]`.

  Args:
    model: gives the head.
    hidden: [n, hidden] or [batch, n, hidden], the model's hidden states at the
      chosen positions.
    targets: int32 [n] or [batch, n], the tokens that followed.
    temperature: divides the logits; no gradient.
    chunk: most positions whose logits exist at a time, on one device.

  Returns:
    Float32 as `targets` each.
  """
  return _scores(model, hidden, targets, temperature, chunk, True)


def _scores(model, hidden, targets, temperature, chunk, entropy):
  shape, embedding = targets.shape, model.head()
  temperature = jnp.asarray(temperature, jnp.float32)
  if not jax.sharding.get_abstract_mesh().empty:
    if targets.ndim == 1:
      hidden, targets = hidden[None], targets[None]
    how = vocabulary_blocks.How(model.compute_dtype, entropy)
    found = vocabulary_blocks.scores(embedding, hidden, targets, temperature, how)
    return _shaped(found, shape)
  count = targets.size
  chunks = -(-count // chunk)
  size = -(-count // chunks)
  padding = chunks * size - count
  hidden = hidden.reshape(count, -1)
  hidden = jnp.pad(hidden, ((0, padding), (0, 0))).reshape(chunks, size, -1)
  targets = jnp.pad(targets.reshape(-1), (0, padding)).reshape(chunks, size)
  scores = _chunked(
      embedding, hidden, targets, temperature, model.compute_dtype, entropy
  )
  return _shaped((score.reshape(-1)[:count] for score in scores), shape)


def _shaped(scores: Iterable[jax.Array], shape: tuple[int, ...]) -> TokenScores:
  found = TokenScores(*(score.reshape(shape) for score in scores))
  return found._replace(entropies=jax.lax.stop_gradient(found.entropies))


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _chunked(embedding, hidden, targets, temperature, dtype, entropy):
  """embedding [vocab, hidden], hidden [chunks, size, hidden], targets [chunks, size]."""
  return _forward(embedding, hidden, targets, temperature, dtype, entropy)[0]


def _forward(embedding, hidden, targets, temperature, dtype, entropy):
  table = embedding.astype(dtype)

  def one(pair):
    hidden, targets = pair
    logits = _logits(table, hidden, temperature, dtype)
    top = jnp.max(logits, axis=0)
    weights = jnp.exp(logits - top)
    total = jnp.sum(weights, axis=0)
    logsumexp = top + jnp.log(total)
    picked = jnp.take_along_axis(logits, targets[None], axis=0)[0]
    spread = jnp.zeros_like(total)
    if entropy:
      spread = logsumexp - jnp.sum(weights * logits, axis=0) / total
    return picked - logsumexp, spread, logsumexp

  scores = jax.lax.map(one, (hidden, targets))
  return scores, (embedding, hidden, targets, temperature, scores[2])


def _backward(dtype, entropy, saved, grads):
  embedding, hidden, targets, temperature, logsumexps = saved
  table = embedding.astype(dtype)
  across = swap_last(table)
  tokens = jnp.arange(embedding.shape[0])[:, None]

  def one(dtable, values):
    hidden, targets, logsumexp, grad, grad_logsumexp = values
    logits = _logits(table, hidden, temperature, dtype)
    weights = jnp.exp(logits - logsumexp)
    hit = tokens == targets
    dlogits = jnp.where(hit, grad, 0.0) - weights * (grad - grad_logsumexp)
    dlogits = (dlogits / temperature).astype(dtype)
    dhidden = swap_last(dot(across, dlogits, 1, 0, dtype))
    return dtable + dot(dlogits, hidden, 1, 0, dtype), dhidden

  dtable = jnp.zeros(embedding.shape, jnp.float32)
  dtable, dhidden = jax.lax.scan(
      one, dtable, (hidden, targets, logsumexps, grads[0], grads[2])
  )
  return dtable.astype(embedding.dtype), dhidden.astype(hidden.dtype), None, None


_chunked.defvjp(_forward, _backward)


def _logits(table, hidden, temperature, dtype):
  """Logits of one chunk, [vocab, size]."""
  return dot(table, hidden, 1, 1, dtype) / temperature
