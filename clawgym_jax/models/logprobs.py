"""Log-probabilities of given tokens, without ever holding [tokens, vocab].

Training and rollouts compute log-probabilities by this one rule: float32
log-softmax of `logits / temperature`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from clawgym_jax.models.causal_lm import CausalLM


def token_logprobs(
    model: CausalLM,
    hidden: jax.Array,
    targets: jax.Array,
    temperature: float = 1.0,
    *,
    chunk: int = 256,
) -> jax.Array:
  """`token_scores` without the entropies: float32 [n]."""
  return token_scores(model, hidden, targets, temperature, chunk=chunk)[0]


def token_scores(
    model: CausalLM,
    hidden: jax.Array,
    targets: jax.Array,
    temperature: float = 1.0,
    *,
    chunk: int = 256,
) -> tuple[jax.Array, jax.Array]:
  """Log-probability of `targets[n]` after `hidden[n]`, and the entropy there.

  Args:
    model: gives the head.
    hidden: [n, hidden], the model's hidden states at the chosen positions.
    targets: int32 [n], the tokens that followed.
    temperature: divides the logits.
    chunk: positions whose logits exist at a time.

  Returns:
    Log-probabilities and entropies (nats; no gradient), float32 [n] each.
  """
  count = hidden.shape[0]
  chunk = min(chunk, count)
  padding = -count % chunk

  @jax.checkpoint
  def one(hidden, targets):
    logits = model.logits(hidden) / temperature
    logits = jax.nn.log_softmax(logits, axis=-1)
    entropy = -jnp.sum(jnp.exp(logits) * logits, axis=-1)
    picked = jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    return picked, jax.lax.stop_gradient(entropy)

  hidden = jnp.pad(hidden, ((0, padding), (0, 0)))
  targets = jnp.pad(targets, (0, padding))
  logprobs, entropies = jax.lax.map(
      lambda pair: one(*pair),
      (
          hidden.reshape(-1, chunk, hidden.shape[-1]),
          targets.reshape(-1, chunk),
      ),
  )
  return logprobs.reshape(-1)[:count], entropies.reshape(-1)[:count]
