"""Log-probabilities of given tokens, without ever holding [tokens, vocab].

Training and rollouts compute log-probabilities by this one rule: float32
log-softmax of `logits / temperature`. The logits of a chunk of positions exist
at a time, vocabulary first, and once more in the backward pass: that way each
product's large operand, the embedding or the logits' gradient, is read as it
lies in memory. On a mesh it is blocks of the vocabulary (`vocabulary_blocks`).
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from clawgym_jax.models import vocabulary_blocks
from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.models.layers.linear import dot, swap_last


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
      chosen positions.
    targets: int32 [n] or [batch, n], the tokens that followed.
    temperature: divides the logits; no gradient.
    chunk: most positions whose logits exist at a time, on one device.

  Returns:
    Log-probabilities and entropies (nats; no gradient), float32 as `targets`.
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
    logprobs, entropies = (x.reshape(shape) for x in found)
    return logprobs, jax.lax.stop_gradient(entropies)
  count = targets.size
  chunks = -(-count // chunk)
  size = -(-count // chunks)
  padding = chunks * size - count
  hidden = hidden.reshape(count, -1)
  hidden = jnp.pad(hidden, ((0, padding), (0, 0))).reshape(chunks, size, -1)
  targets = jnp.pad(targets.reshape(-1), (0, padding)).reshape(chunks, size)
  logprobs, entropies = _chunked(
      embedding, hidden, targets, temperature, model.compute_dtype, entropy
  )
  return (
      logprobs.reshape(-1)[:count].reshape(shape),
      jax.lax.stop_gradient(entropies.reshape(-1)[:count].reshape(shape)),
  )


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

  logprobs, entropies, logsumexps = jax.lax.map(one, (hidden, targets))
  saved = embedding, hidden, targets, temperature, logsumexps
  return (logprobs, entropies), saved


def _backward(dtype, entropy, saved, grads):
  embedding, hidden, targets, temperature, logsumexps = saved
  table = embedding.astype(dtype)
  across = swap_last(table)
  tokens = jnp.arange(embedding.shape[0])[:, None]

  def one(dtable, values):
    hidden, targets, logsumexp, grad = values
    logits = _logits(table, hidden, temperature, dtype)
    hit = (tokens == targets).astype(jnp.float32)
    dlogits = (hit - jnp.exp(logits - logsumexp)) * (grad / temperature)
    dlogits = dlogits.astype(dtype)
    dhidden = swap_last(dot(across, dlogits, 1, 0, dtype))
    return dtable + dot(dlogits, hidden, 1, 0, dtype), dhidden

  dtable = jnp.zeros(embedding.shape, jnp.float32)
  dtable, dhidden = jax.lax.scan(
      one, dtable, (hidden, targets, logsumexps, grads[0])
  )
  return dtable.astype(embedding.dtype), dhidden.astype(hidden.dtype), None, None


_chunked.defvjp(_forward, _backward)


def _logits(table, hidden, temperature, dtype):
  """Logits of one chunk, [vocab, size]."""
  return dot(table, hidden, 1, 1, dtype) / temperature
