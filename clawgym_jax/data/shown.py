"""Samples and their lengths for people to look at, in plain text."""

from __future__ import annotations

import numpy as np

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.data.sequence import Sequence

_TRAINED, _PLAIN = "\x1b[32m", "\x1b[0m"
_OPEN, _CLOSE = "[[", "]]"  # where standard output is not a terminal
_BAR = 40  # characters


def histogram(lengths: np.ndarray) -> list[str]:
  """Lines with a bar for each power of two: how many lengths are below it."""
  edges = 2 ** np.arange(int(lengths.max()).bit_length() + 1)
  counts, _ = np.histogram(lengths, edges)
  first = int(np.flatnonzero(counts)[0])
  return [
      f"{edges[i]:>9} to {edges[i + 1] - 1:<9} {counts[i]:>8}"
      f"  {'#' * -(-_BAR * int(counts[i]) // int(counts.max()))}"
      for i in range(first, len(counts))
  ]


def coloured(sequence: Sequence, tokenizer: Tokenizer, terminal: bool) -> str:
  """The decoded sequence, trained runs in green or in [[double brackets]]."""
  before, after = (_TRAINED, _PLAIN) if terminal else (_OPEN, _CLOSE)
  edges = np.flatnonzero(np.diff(sequence.trained)) + 1
  text = ""
  for run in np.split(np.arange(len(sequence)), edges):
    part = tokenizer.decode([int(t) for t in sequence.tokens[run]])
    text += f"{before}{part}{after}" if sequence.trained[run[0]] else part
  return text
