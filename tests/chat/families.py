"""Chat template families: a small tokenizer with each one's control tokens."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from pathlib import Path

import sentencepiece
import tokenizers
import transformers
from tokenizers import decoders, models, pre_tokenizers, trainers

from clawgym_jax.chat import sentencepiece_model
from clawgym_jax.chat.template import ChatTemplate, compact
from clawgym_jax.chat.tokenizer import Tokenizer

TEXTS = [
    f"Please sum column {i} of data/f{i}.csv and write it to out/total{i}.txt.\n"
    f'<tool_call>\n{{"name": "exec", "arguments": {{"command": "ls {i}"}}}}\n'
    f"The system, user and assistant agree\n\n thanks é 日本 {i * 7}!"
    for i in range(200)
]
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBER"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Family:
  """`special` and `plain` are the added tokens; `kind` is of the vocabulary."""

  name: str
  special: tuple[str, ...]
  plain: tuple[str, ...] = ()
  kind: str = "qwen"
  bos: str | None = None
  eos: str = "<|im_end|>"

  @functools.cached_property
  def template(self) -> ChatTemplate:
    if self.name == "compact":
      return compact()
    path = Path(__file__).parent / "templates" / f"{self.name}.jinja"
    return ChatTemplate(path.read_text())

  @functools.cached_property
  def named(self) -> dict[str, str]:
    named = {"bos_token": self.bos, "eos_token": self.eos}
    return {name: token for name, token in named.items() if token}

  @functools.cached_property
  def tokenizer(self) -> Tokenizer:
    return Tokenizer(_backend(self), self.template, named=self.named)

  @functools.cached_property
  def peer(self) -> transformers.PreTrainedTokenizerFast:
    """Hugging Face's tokenizer of the same files."""
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=_backend(self),
        chat_template=self.template.source,
        **self.named,
    )

  def ids(self, messages, tools, asking, **variables) -> list[int]:
    """What `apply_chat_template` gives."""
    return self.peer.apply_chat_template(
        messages, tools, add_generation_prompt=asking, tokenize=True,
        return_dict=False, **variables,
    )  # fmt: skip


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CALLS = ("<tool_call>", "</tool_call>")
_REPLIES = ("<tool_response>", "</tool_response>")
_THINKS = ("<think>", "</think>")
FAMILIES = {
    family.name: family
    for family in (
        Family("qwen2_5", _CHATML, _CALLS),
        Family("qwen3", _CHATML, (*_CALLS, *_REPLIES, *_THINKS)),
        Family("qwen3_thinking", _CHATML, (*_CALLS, *_THINKS)),
        Family("qwen3_coder", _CHATML, (*_CALLS, *_REPLIES)),
        Family(
            "llama3_1",
            (
                "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>",
            ),
            kind="llama3",
            bos="<|begin_of_text|>",
            eos="<|eot_id|>",
        ),
        Family(
            "mistral_v3",
            (
                "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]",
                "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
            ),
            kind="sentencepiece",
            bos="<s>",
            eos="</s>",
        ),
        Family(
            "gemma3",
            ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
            ("\n\n", "<h1>"),
            kind="sentencepiece",
            bos="<bos>",
            eos="<eos>",
        ),
        Family("smollm2", _CHATML, kind="smollm", bos="<|im_start|>"),
        Family("hermes", _CHATML, kind="llama3", bos="<|endoftext|>"),
        Family("compact", _CHATML[1:], kind="smollm", bos="<|im_start|>"),
    )
}


def _backend(family: Family) -> tokenizers.Tokenizer:
  backend = _vocabulary(family)
  for texts, special in ((family.special, True), (family.plain, False)):
    for text in texts:
      token = tokenizers.AddedToken(text, special=special, normalized=False)
      (backend.add_special_tokens if special else backend.add_tokens)([token])
  return backend


def _vocabulary(family: Family) -> tokenizers.Tokenizer:
  if family.kind == "sentencepiece":
    return sentencepiece_model.backend(piece_model(family), legacy=False)
  backend = tokenizers.Tokenizer(models.BPE(ignore_merges=family.kind == "llama3"))
  number = r"\p{N}{1,3}" if family.kind == "llama3" else r"\p{N}"
  split = tokenizers.Regex(_WORDS.replace("NUMBER", number))
  first = (
      pre_tokenizers.Digits(individual_digits=True)
      if family.kind == "smollm"
      else pre_tokenizers.Split(split, behavior="isolated")
  )
  own = family.kind == "smollm"
  backend.pre_tokenizer = pre_tokenizers.Sequence(
      [first, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own)]
  )
  backend.decoder = decoders.ByteLevel()
  alphabet = pre_tokenizers.ByteLevel.alphabet()
  trainer = trainers.BpeTrainer(
      vocab_size=600, initial_alphabet=sorted(alphabet), show_progress=False
  )
  backend.train_from_iterator(TEXTS, trainer)
  return backend


def piece_model(family: Family, **changes) -> bytes:
  """A sentencepiece BPE model: Gemma's adds no space in front, Mistral's does."""
  model = io.BytesIO()
  gemma = family.name == "gemma3"
  settings = {
      "vocab_size": 500,
      "model_type": "bpe",
      "byte_fallback": True,
      "normalization_rule_name": "identity",
      "remove_extra_whitespaces": False,
      "add_dummy_prefix": not gemma,
      "split_digits": True,
      "bos_piece": family.bos,
      "eos_piece": family.eos,
      "control_symbols": [t for t in family.special if t not in (family.bos, family.eos)],
      "user_defined_symbols": list(family.plain),
  }
  sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(TEXTS), model_writer=model, hard_vocab_limit=False,
      num_threads=1, minloglevel=2, **{**settings, **changes},
  )  # fmt: skip
  return model.getvalue()
