"""Prints what a chats file is worth, and samples with trained tokens coloured."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from clawgym_jax import cli
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.data import chats
from clawgym_jax.data.packing import plan
from clawgym_jax.data.sequence import Sequence
from clawgym_jax.data.tree import Tree

_CHATS = flags.DEFINE_string("chats", None, "Chats, JSON lines.")
_TOKENIZER = flags.DEFINE_string("tokenizer", None, "Folder of a converted model.")
_ROW_LENGTH = flags.DEFINE_integer(
    "row_length", 1024, "Tokens of a training row.", lower_bound=16
)
_SAMPLES = flags.DEFINE_integer("samples", 2, "Samples to print.", lower_bound=0)
_SEED = flags.DEFINE_integer("seed", 0, "Which samples.")

_TRAINED, _PLAIN = "\x1b[32m", "\x1b[0m"
_OPEN, _CLOSE = "[[", "]]"  # where standard output is not a terminal


def main() -> dict[str, Any]:
  if not _CHATS.value or not _TOKENIZER.value:
    raise UserError("give --chats=FILE and --tokenizer=DIR")
  tokenizer = Tokenizer.load(Path(_TOKENIZER.value))
  corpus = chats.tokenize_all(
      chats.read_chats(Path(_CHATS.value)), tokenizer, _ROW_LENGTH.value
  )
  rows = plan(corpus.sequences, _ROW_LENGTH.value)
  packed = sum(Tree(corpus.sequences[i] for i in row).size for row in rows)
  lengths = [len(s) for s in corpus.sequences]
  p50, p90 = (int(np.percentile(lengths, q)) for q in (50, 90))
  summary = {
      "chats": len(corpus.sequences) + corpus.dropped,
      "truncated": corpus.truncated,
      "dropped": corpus.dropped,
      "tokens": corpus.tokens,
      "trained_tokens": corpus.trained_tokens,
      "tokens_p50": p50,
      "tokens_p90": p90,
      "tokens_max": max(lengths),
      "rows": len(rows),
      "packed_tokens": packed,
      "row_fill": round(packed / (len(rows) * _ROW_LENGTH.value), 4),
  }
  for name, value in summary.items():
    print(f"{name:>15}  {value}")
  chosen = random.Random(_SEED.value).sample(
      corpus.sequences, min(_SAMPLES.value, len(corpus.sequences))
  )
  for sequence in chosen:
    print("\n" + coloured(sequence, tokenizer, sys.stdout.isatty()))
  return summary


def coloured(sequence: Sequence, tokenizer: Tokenizer, terminal: bool) -> str:
  """The decoded sequence, trained runs in green or in [[double brackets]]."""
  before, after = (_TRAINED, _PLAIN) if terminal else (_OPEN, _CLOSE)
  edges = np.flatnonzero(np.diff(sequence.trained)) + 1
  text = ""
  for run in np.split(np.arange(len(sequence)), edges):
    part = tokenizer.decode([int(t) for t in sequence.tokens[run]])
    text += f"{before}{part}{after}" if sequence.trained[run[0]] else part
  return text


if __name__ == "__main__":
  cli.run(main)
