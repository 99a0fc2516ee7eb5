"""Trains a small sentencepiece vocabulary on a corpus.

The result is the same `Tokenizer` as any other: the sentencepiece model's
pieces and scores become a Unigram model of the `tokenizers` library, which
gives the same ids. The control tokens come after the pieces and are none of
them, so that text never matches them. Whitespace is kept and no prefix space is
added, so ids of a concatenation at a control token are the concatenation of ids.
"""

from __future__ import annotations

import io
from collections.abc import Iterable

import sentencepiece
import tokenizers

from clawgym_jax.chat import sentencepiece_model
from clawgym_jax.chat.template import compact
from clawgym_jax.chat.tokenizer import TURN_END, TURN_START, Tokenizer


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
  """A unigram vocabulary with byte fallback, of at most `vocab_size` pieces."""
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=(line for text in texts for line in text.splitlines() if line),
      model_writer=model,
      vocab_size=vocab_size,
      model_type="unigram",
      hard_vocab_limit=False,
      byte_fallback=True,
      normalization_rule_name="identity",
      add_dummy_prefix=False,
      remove_extra_whitespaces=False,
      split_digits=True,
      bos_id=-1,
      eos_id=-1,
      num_threads=1,
      minloglevel=2,
  )
  return from_sentencepiece(model.getvalue())


def from_sentencepiece(model: bytes) -> Tokenizer:
  """The `Tokenizer` of a serialised model made by `train`, with the compact format."""
  backend = sentencepiece_model.backend(model)
  backend.add_special_tokens(
      [
          tokenizers.AddedToken(token, special=True, normalized=False)
          for token in (TURN_START, TURN_END)
      ]
  )
  return Tokenizer(backend, compact())
