"""One step's experience to optimizer updates; knows nothing of rollouts.

Three log-prob columns: the engine's, the trainer's own from the weights before
the update (recomputed here for all rows first), and those of the weights as
they change. All are of the distribution that was sampled from: the trainer
divides its logits by the sampling temperature.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from clawgym_jax.configs.base import RlConfig
from clawgym_jax.data.batch import collate
from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.parallel.host import release_memory
from clawgym_jax.rl.objectives import kl_k3, ppo_clip
from clawgym_jax.rl.rows import Experience
from clawgym_jax.sft.setup import place
from clawgym_jax.sft.scores import Batch, trained_scores
from clawgym_jax.sft.updates import Loss, Updates

Metrics = dict[str, Any]


def policy_loss(config: RlConfig) -> Loss:
  """The summed loss of a batch whose columns hold log-probs and advantages."""
  temperature, objective = config.rollouts.temperature, config.objective

  def loss(model: CausalLM, batch: Batch):
    scores = trained_scores(model, batch, temperature)
    weight = batch["weight"]
    total, sums = ppo_clip(
        scores.logprobs,
        batch["old_logprobs"],
        batch["rollout_logprobs"],
        batch["advantage"],
        weight,
        clip_low=objective.clip_low,
        clip_high=objective.clip_high,
        truncated_is=objective.truncated_is,
    )
    sums |= {"loss": total, "entropy": jnp.sum(weight * scores.entropies)}
    if objective.kl_coef:
      sums["kl"] = kl_k3(scores.logprobs, batch["reference_logprobs"], weight)
      total += objective.kl_coef * sums["kl"]
    return total, sums

  return loss


@dataclass
class Learner:
  """Weights and optimizer of a policy under training.

  `reference` holds the weights that a KL penalty pulls to; None without one.
  """

  config: RlConfig
  graphdef: nnx.GraphDef
  params: nnx.State
  reference: nnx.State | None = None
  mesh: jax.sharding.Mesh | None = None

  def __post_init__(self) -> None:
    self.updates = Updates(
        self.graphdef,
        self.params,
        policy_loss(self.config),
        self.config.optimizer,
        self.mesh,
    )
    self.optimizer = self.updates.initial(self.params)
    self._score = jax.jit(self._scored)

  def _scored(self, params: nnx.State, batch: Batch) -> jax.Array:
    model = nnx.merge(self.graphdef, params)
    return trained_scores(model, batch, self.config.rollouts.temperature).logprobs

  def learn(self, experience: Experience, rate: float, step: int) -> Metrics:
    """Updates the weights; seconds and means over trained tokens, NaN where not finite.

    `experience` must have rows; `step` seeds their order. Old log-probs and the
    advantages' scale are those of before the first of `config.updates_per_step`
    updates.
    """
    started = time.monotonic()
    release_memory()  # of the rollouts
    batches = self._batches(experience, step)
    for batch in batches:
      batch["old_logprobs"] = np.asarray(self._score(self.params, place(batch, self.mesh)))
      if self.reference is not None:
        batch["reference_logprobs"] = np.asarray(
            self._score(self.reference, place(batch, self.mesh))
        )
    release_memory()
    scored = time.monotonic()
    totals: dict[str, float] = {}
    weights = 0.0
    norms = []
    parts = min(self.config.updates_per_step, len(batches))
    for part in range(parts):
      micro = batches[part::parts]
      weight = float(sum(batch["weight"].sum() for batch in micro))
      denominator = weight
      if self.config.objective.aggregation == "constant_length":
        share = experience.trajectories * weight / experience.trained_tokens
        denominator = share * self.config.rollouts.max_len
      sums = None
      for batch in micro:
        sums = self.updates.accumulate(
            sums, self.params, place(batch, self.mesh), denominator
        )
        jax.block_until_ready(sums)
        # What is small and lives on splits the large block that was free, so that
        # the next one lies above it: without this the heap grows step by step.
        release_memory()
      self.params, self.optimizer, norm = self.updates.apply(
          self.params, self.optimizer, sums[0], rate
      )
      norms.append(float(norm))
      weights += weight
      for name, value in sums[1].items():
        totals[name] = totals.get(name, 0.0) + float(value)
    return {
        **{name: value / weights for name, value in totals.items()},
        "mismatch_max": self._worst(batches),
        "gradient_norm": float(np.max(norms)),  # NaN if one is
        "rows": len(experience.rows),
        "seconds_logprobs": scored - started,
        "seconds_update": time.monotonic() - scored,
    }

  def _batches(self, experience: Experience, step: int) -> list[dict[str, np.ndarray]]:
    """Micro-batches of one shape, rows in an order drawn anew."""
    order = np.random.default_rng((self.config.seed, step))
    rows = [experience.rows[i] for i in order.permutation(len(experience.rows))]
    size = self.config.micro_rows
    return [
        # A slot for each token: one shape, so one compile, whatever was sampled.
        collate(rows[start : start + size], self.config.row_length, total_rows=size)
        for start in range(0, len(rows), size)
    ]

  def _worst(self, batches: list[dict[str, np.ndarray]]) -> float:
    worst = [
        np.max(
            np.abs(batch["old_logprobs"] - batch["rollout_logprobs"]),
            where=batch["weight"] > 0,
            initial=0.0,
        )
        for batch in batches
    ]
    return float(np.max(worst))
