"""A trajectory's tree of steps as sequences, by the exact ids that were sampled.

There is one sequence for each leaf. A step that several leaves share is trained
in the first of them and context in the others, so every sampled token is trained
exactly once, in the context that it was sampled in.
"""

from __future__ import annotations

import numpy as np

from clawgym_jax.contracts.errors import require
from clawgym_jax.contracts.trajectory import Step, Trajectory
from clawgym_jax.data.sequence import Sequence


def sequences_of(trajectory: Trajectory, advantage: float = 1.0) -> list[Sequence]:
  """One sequence for each leaf that has something to train.

  `RecordError` for a step whose upstream gave text alone.
  """
  made = []
  for chain, learnt in paths(trajectory):
    sequence = _sequence(chain, learnt, advantage)
    if sequence.trained_tokens:
      made.append(sequence)
  return made


def paths(trajectory: Trajectory) -> list[tuple[list[Step], set[str]]]:
  """For each leaf its steps from the root on, and the ids of those trained there."""
  found = []
  trained: set[str] = set()
  for leaf in trajectory.leaves():
    chain = trajectory.chain(leaf)
    new = {step.step_id for step in chain} - trained
    found.append((chain, new))
    trained |= new
  return found


def _sequence(chain: list[Step], learnt: set[str], advantage: float) -> Sequence:
  tokens, learn, logprobs, versions = [], [], [], []
  for step in chain:
    require(
        step.response_ids is not None,
        f"step {step.step_id} has text without token ids",
    )
    context, response = step.prompt_ids, step.response_ids
    tokens += context + response
    learn += [False] * len(context) + [step.step_id in learnt] * len(response)
    logprobs += [0.0] * len(context) + step.logprobs
    versions += [0] * len(context) + step.policy_versions
  flags = np.asarray(learn, bool)
  return Sequence(
      np.asarray(tokens, np.int32),
      flags,
      np.where(flags, advantage, 0).astype(np.float32),
      np.where(flags, logprobs, 0).astype(np.float32),
      np.where(flags, versions, 0).astype(np.int32),
  )
