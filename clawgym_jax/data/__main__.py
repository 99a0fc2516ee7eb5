"""Prints what sources of chats are worth, and samples with trained tokens coloured.

  python -m clawgym_jax.data --chats=chats.jsonl --tokenizer=models/base
  python -m clawgym_jax.data --config=demo_sft --config.data.chats=chats.jsonl

It tokenises as a run of that config would, into the same cache.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from clawgym_jax.chat import vocabulary
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.configs import command
from clawgym_jax.configs.base import ModelSource, SftConfig
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.data.corpus import Corpus, Part, load, open_sources
from clawgym_jax.data.pipeline import Batches
from clawgym_jax.data.shown import coloured, histogram
from clawgym_jax.data.tree import Tree

_CHATS = flags.DEFINE_string(
    "chats", None, "In the place of the config's data.chats: NAME[@WEIGHT],…"
)
_TOKENIZER = flags.DEFINE_string(
    "tokenizer", None, "A model folder, in the place of the config's model.source."
)
_SAMPLES = flags.DEFINE_integer("samples", 2, "Samples to print.", lower_bound=0)
_SEED = flags.DEFINE_integer("seed", 0, "Which samples.")


def main(config: SftConfig) -> dict[str, Any]:
  data = config.data
  if _CHATS.value:
    data = dataclasses.replace(data, chats=_CHATS.value)
  if not data.chats:
    raise UserError("give --chats=NAME, or --config.data.chats=NAME")
  opened = open_sources(data.chats)
  tokenizer = _tokenizer(config.model, opened.texts)
  corpus = load(opened, tokenizer, data)
  batches = Batches.of(corpus, data, seed=config.seed)
  summary = _summary(corpus, batches, data.row_length)
  for name, value in summary.items():
    print(f"{name:>15}  {value}")
  print()
  for line in histogram(corpus.sequences.length):
    print(line)
  for part, passes in zip(corpus.parts, batches.passes):
    print(f"\n{part.name}: {_told(part, passes)}")
  chosen = random.Random(_SEED.value).sample(
      range(len(corpus.sequences)), min(_SAMPLES.value, len(corpus.sequences))
  )
  for index in chosen:
    print("\n" + coloured(corpus.sequences[index], tokenizer, sys.stdout.isatty()))
  return summary


def _tokenizer(source: ModelSource, texts: Callable[[], Iterable[str]]) -> Tokenizer:
  if _TOKENIZER.value:
    return Tokenizer.load(Path(_TOKENIZER.value))
  if source.source == "tiny":
    return vocabulary.train(texts(), source.vocab_size)
  from clawgym_jax.checkpoints import source as checkpoint  # loads jax

  return checkpoint.tokenizer(
      source.source, flag="--config.model.source", also=("tiny",)
  )


def _summary(corpus: Corpus, batches: Batches, row_length: int) -> dict[str, Any]:
  length = corpus.sequences.length
  p50, p90 = (int(np.percentile(length, q)) for q in (50, 90))
  packed = sum(
      Tree(corpus.sequences[i] for i in row).size for row in batches.plan
  )
  return {
      "records": corpus.records,
      "left_out": corpus.causes,
      "sequences": len(length),
      "truncated": corpus.truncated,
      "lost_tokens": sum(part.lost_tokens for part in corpus.parts),
      "tokens": corpus.tokens,
      "trained_tokens": corpus.trained_tokens,
      "tokens_p50": p50,
      "tokens_p90": p90,
      "tokens_max": int(length.max()),
      "rows": len(batches.plan),
      "packed_tokens": packed,
      "padding_share": round(1 - packed / (len(batches.plan) * row_length), 4),
      "quarantine": [str(part.quarantine) for part in corpus.parts],
  }


def _told(part: Part, passes: float) -> str:
  """One source in a line."""
  told = f"{part.records} records, {part.stop - part.first} sequences"
  if part.weight is not None:
    told += f", weight {part.weight:g}: an epoch sees each {passes:.2f} times"
  if part.truncated:
    told += f"; {part.truncated} cut by whole turns"
  for cause, count in part.causes.items():
    told += f"; {count} left out: {cause}"
  return told


if __name__ == "__main__":
  command.run(main, SftConfig, optional=True)
