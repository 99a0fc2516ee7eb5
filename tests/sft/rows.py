"""Sequences that share prompts, and the same tokens laid out in three ways."""

import numpy as np

from clawgym_jax.data.batch import collate
from clawgym_jax.data.sequence import Sequence
from clawgym_jax.data.tree import Tree

VOCAB = 320
SLOTS = 64


def sequences(seed: int = 0, count: int = 5) -> list[Sequence]:
  """A shared system prompt, two tasks, several answers each, several turns."""
  rng = np.random.default_rng(seed)
  draw = lambda n: rng.integers(0, VOCAB, n)
  system, tasks = draw(7), [draw(3), draw(4)]
  made = []
  for index in range(count):
    parts = [(system, False), (tasks[index % 2], False), (draw(4), True)]
    parts += [(draw(3), False), (draw(2 + index), True)]
    tokens = np.concatenate([ids for ids, _ in parts]).astype(np.int32)
    trained = np.concatenate([np.full(len(ids), flag) for ids, flag in parts])
    length = len(tokens)
    made.append(
        Sequence(
            tokens,
            trained,
            np.where(trained, rng.normal(size=length), 0).astype(np.float32),
            np.where(trained, -rng.random(length), 0).astype(np.float32),
            np.zeros(length, np.int32),
        )
    )
  return made


def unpacked(made: list[Sequence]) -> dict[str, np.ndarray]:
  """One sequence a row."""
  return collate([Tree([s]).row(128) for s in made], SLOTS)


def packed(made: list[Sequence], *, share: bool) -> dict[str, np.ndarray]:
  """All sequences in one row, flat or as a tree."""
  return collate([Tree(made, share=share).row(128)], SLOTS)
