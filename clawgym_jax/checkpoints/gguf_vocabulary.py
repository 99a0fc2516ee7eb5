"""The tokenizer of a GGUF file, rebuilt from its tokens, merges and scores.

A byte-level BPE (`gpt2`) needs the name of its splits, which llama.cpp keeps in
its code; a sentencepiece BPE (`llama`) has scores in place of merges. A
vocabulary with `<|im_start|>` and `<|im_end|>` gets this project's compact
format, whose prompts are short; any other keeps its own template.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from clawgym_jax.chat.tokenizer import TURN_END, TURN_START, Tokenizer
from clawgym_jax.contracts.errors import UserError

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBER"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {
    "qwen2": _WORDS.replace("NUMBER", r"\p{N}"),
    "llama-bpe": _WORDS.replace("NUMBER", r"\p{N}{1,3}"),
}
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_SPACE = "\u2581"


def tokenizer(path: Path, fields: dict[str, Any]) -> Tokenizer:
  """The tokenizer in a file's metadata; `UserError` where it is not read here."""
  return Tokenizer(_backend(path, fields), chat_format="compact")


def files(
    path: Path, fields: dict[str, Any], config: dict[str, Any]
) -> dict[str, bytes]:
  """The tokenizer's files of a model folder, by name; `config` is config.json's."""
  backend = _backend(path, fields)
  if {TURN_START, TURN_END} <= set(fields["tokenizer.ggml.tokens"]):
    texts = Tokenizer(backend, chat_format="compact").to_files()
    return {name: text.encode() for name, text in texts.items()}
  special = {
      f"{role}_token": fields["tokenizer.ggml.tokens"][config[f"{role}_token_id"]]
      for role in ("bos", "eos", "pad")
      if config.get(f"{role}_token_id") is not None
  }
  settings = {
      "tokenizer_class": "PreTrainedTokenizerFast",
      "clean_up_tokenization_spaces": False,
      **special,
  }
  found = {"tokenizer.json": backend.to_str(), "special_tokens_map.json": _dumps(special)}
  template = fields.get("tokenizer.chat_template")
  if template is not None:
    settings["chat_template"] = found["chat_template.jinja"] = template
  found["tokenizer_config.json"] = _dumps(settings)
  return {name: text.encode() for name, text in found.items()}


def _backend(path: Path, fields: dict[str, Any]) -> tokenizers.Tokenizer:
  kind = fields.get("tokenizer.ggml.model")
  split = fields.get("tokenizer.ggml.pre")
  if kind == "gpt2" and (split == "smollm" or split in _SPLITS):
    backend = _byte_level(fields, split)
  elif kind == "llama":
    backend = _sentencepiece(fields)
  else:
    raise UserError(
        f"{path} has a tokenizer of kind {kind!r} with splits {split!r}; read"
        f" here are 'llama', and 'gpt2' with {sorted([*_SPLITS, 'smollm'])}"
    )
  types = fields["tokenizer.ggml.token_type"]
  for token, role in zip(fields["tokenizer.ggml.tokens"], types):
    if role in (_CONTROL, _USER_DEFINED):
      added = tokenizers.AddedToken(token, special=role == _CONTROL, normalized=False)
      add = backend.add_special_tokens if role == _CONTROL else backend.add_tokens
      add([added])
  return backend


def _byte_level(fields: dict[str, Any], split: str) -> tokenizers.Tokenizer:
  tokens = fields["tokenizer.ggml.tokens"]
  merges = [tuple(m.split(" ")) for m in fields.get("tokenizer.ggml.merges", [])]
  backend = tokenizers.Tokenizer(
      models.BPE(
          vocab={token: i for i, token in enumerate(tokens)},
          merges=merges,
          ignore_merges=split == "llama-bpe",
      )
  )
  if split == "smollm":
    first = pre_tokenizers.Digits(individual_digits=True)
  else:
    pattern = tokenizers.Regex(_SPLITS[split])
    first = pre_tokenizers.Split(pattern, behavior="isolated")
  backend.pre_tokenizer = pre_tokenizers.Sequence([
      first,
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split == "smollm"),
  ])
  backend.decoder = decoders.ByteLevel()
  return backend


def _sentencepiece(fields: dict[str, Any]) -> tokenizers.Tokenizer:
  """A pair of pieces merges as early as the score of what it makes is high."""
  tokens = fields["tokenizer.ggml.tokens"]
  scores = fields["tokenizer.ggml.scores"]
  types = fields["tokenizer.ggml.token_type"]
  vocabulary = {token: i for i, token in enumerate(tokens)}
  merges = []
  for token, score, role in zip(tokens, scores, types):
    if role in (_UNKNOWN, _CONTROL):
      continue
    for cut in range(1, len(token)):
      left, right = token[:cut], token[cut:]
      if left in vocabulary and right in vocabulary:
        merges.append((-score, vocabulary[left], vocabulary[right], left, right))
  merges.sort()
  unknown = next((t for t, role in zip(tokens, types) if role == _UNKNOWN), None)
  backend = tokenizers.Tokenizer(
      models.BPE(
          vocab=vocabulary,
          merges=[merge[-2:] for merge in merges],
          unk_token=unknown,
          fuse_unk=True,
          byte_fallback=True,
      )
  )
  steps = [normalizers.Replace(" ", _SPACE)]
  back = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
  if fields.get("tokenizer.ggml.add_space_prefix", True):
    steps.insert(0, normalizers.Prepend(_SPACE))
    back.append(decoders.Strip(" ", 1, 0))
  backend.normalizer = normalizers.Sequence(steps)
  backend.decoder = decoders.Sequence(back)
  return backend


def _dumps(value: Any) -> str:
  return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
