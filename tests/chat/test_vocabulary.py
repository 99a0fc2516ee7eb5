"""The small vocabulary: sentencepiece's own ids, text kept, control tokens apart."""

import io

import sentencepiece

from clawgym_jax.chat import vocabulary
from clawgym_jax.chat.template import compact
from clawgym_jax.chat.tokenizer import TURN_END, TURN_START
from tests.chat.families import TEXTS


def test_ids_are_sentencepieces():
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=400,
      model_type="unigram", hard_vocab_limit=False, byte_fallback=True,
      normalization_rule_name="identity", add_dummy_prefix=False,
      remove_extra_whitespaces=False, bos_id=-1, eos_id=-1,
      minloglevel=2,
  )  # fmt: skip
  reference = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
  ours = vocabulary.from_sentencepiece(model.getvalue())
  for text in (*TEXTS[:20], "new words  here", "é 日本\n\tx", "<|im_end|> <unk>"):
    assert ours.encode(text) == reference.encode(text)
    assert ours.decode(ours.encode(text)) == text


def test_a_trained_vocabulary_has_the_compact_format():
  ours = vocabulary.train(TEXTS, 420)
  assert ours.template.source == compact().source
  assert ours.eos_ids == [ours.token_id(TURN_END)] and ours.pad_id == ours.eos_id
  assert ours.bos_id == ours.token_id(TURN_START)
  assert ours.vocab_size <= 422
