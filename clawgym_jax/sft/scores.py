"""Log-probabilities of a batch's trained tokens: one rule for every loss.

Slots of weight 0 read a zero vector instead of a hidden state and give 0, so
nothing at a masked position, NaN included, reaches the value or a gradient.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.models.logprobs import TokenScores, token_scores
from clawgym_jax.parallel import context

Batch = dict[str, jax.Array]


def trained_scores(
    model: CausalLM, batch: Batch, temperature: float = 1.0
) -> TokenScores:
  """The scores of the trained tokens, float32 [batch, slots] each.

  Args:
    model: any model of `clawgym_jax.models`.
    batch: as `data.batch.collate` makes it.
    temperature: divides the logits; that of sampling, where tokens were sampled.
  """
  live = batch["weight"] > 0
  hidden, _ = model(batch["tokens"], batch["positions"], end=batch["end"])
  hidden = context.taken(hidden, batch["before"], model.compute_dtype)
  hidden = jnp.where(live[..., None], hidden, 0.0)
  scores = token_scores(model, hidden, batch["targets"], temperature)
  return TokenScores(*(jnp.where(live, value, 0.0) for value in scores))


def supervised_loss(
    model: CausalLM, batch: Batch, z_loss: float = 0.0
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """What is minimised, summed over the trained tokens, and sums to report.

  That is the negative log-likelihood and `z_loss` times log(sum(exp(logits)))
  squared (arXiv:2204.02311, section 5). The sums: of the likelihood by token
  (`loss`) and weighted by `share` (`loss_by_trajectory`), and of the entropies.
  """
  scores = trained_scores(model, batch)
  weight = batch["weight"]
  loss = -jnp.sum(weight * scores.logprobs)
  sums = {
      "loss": loss,
      "loss_by_trajectory": -jnp.sum(batch["share"] * scores.logprobs),
      "entropy": jnp.sum(weight * scores.entropies),
  }
  if z_loss:
    loss += z_loss * jnp.sum(weight * scores.logsumexps**2)
  return loss, sums
