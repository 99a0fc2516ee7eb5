"""One path of tokens from a prompt to its last trained token.

Ids are those that were sampled or rendered; nothing here encodes text. The
columns say something about the token they stand at, as in `contracts.row`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from clawgym_jax.contracts.errors import require


@dataclass(frozen=True)
class Sequence:
  """Columns of one length, [time] each.

  `advantage`, `rollout_logprobs` and `policy_version` matter at trained
  tokens alone. The first token can't be trained: nothing predicts it.
  """

  tokens: np.ndarray
  trained: np.ndarray
  advantage: np.ndarray
  rollout_logprobs: np.ndarray
  policy_version: np.ndarray

  def __post_init__(self) -> None:
    shapes = {getattr(self, name).shape for name in self.__dataclass_fields__}
    require(len(shapes) == 1, f"columns of one sequence differ in shape: {shapes}")
    require(len(self.tokens) > 0, "a sequence has no tokens")
    require(not self.trained[0], "the first token of a sequence can't be trained")

  def __len__(self) -> int:
    return len(self.tokens)

  @property
  def trained_tokens(self) -> int:
    return int(self.trained.sum())


def supervised(tokens: list[int], trained: list[bool]) -> Sequence:
  """A sequence for supervised training: every trained token counts the same."""
  length = len(tokens)
  return Sequence(
      np.asarray(tokens, np.int32),
      np.asarray(trained, bool),
      np.ones(length, np.float32),
      np.zeros(length, np.float32),
      np.zeros(length, np.int32),
  )


def head(sequence: Sequence, length: int) -> Sequence:
  """Its first `length` tokens."""
  columns = (getattr(sequence, name)[:length] for name in sequence.__dataclass_fields__)
  return Sequence(*columns)


def turn_ends(sequence: Sequence) -> np.ndarray:
  """How many tokens there are up to the end of each trained answer, ascending."""
  following = np.append(sequence.trained[1:], False)
  return np.flatnonzero(sequence.trained & ~following) + 1


def sizes(sequences: Collection[Sequence]) -> tuple[np.ndarray, np.ndarray]:
  """Tokens and trained tokens of each, [sequences]; not read where they are known."""
  if hasattr(sequences, "length"):
    return sequences.length, sequences.trained
  found = [(len(one), one.trained_tokens) for one in sequences]
  length, trained = np.asarray(found, np.int64).reshape(-1, 2).T
  return length, trained
