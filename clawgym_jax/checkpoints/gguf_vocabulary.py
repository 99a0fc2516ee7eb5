"""The tokenizer of a GGUF file, rebuilt from its tokens, merges and scores.

A byte-level BPE (`gpt2`) needs the name of its splits, which llama.cpp keeps in
its code; a sentencepiece BPE (`llama`) becomes a sentencepiece model again. A
vocabulary with `<|im_start|>` and `<|im_end|>` gets this project's compact
format, whose prompts are short; any other keeps the template that came with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from clawgym_jax.chat.template import ChatTemplate, compact
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
_SMOLLM = "smollm"
_CONTROL, _USER_DEFINED = 3, 4
_SENTENCEPIECE_BPE = 2
_KEY = "tokenizer.ggml"


def tokenizer(path: Path, fields: dict[str, Any]) -> Tokenizer:
  """The tokenizer in a file's metadata; `UserError` where it is not read here."""
  kind, split = fields.get(f"{_KEY}.model"), fields.get(f"{_KEY}.pre")
  if kind == "llama":
    return _sentencepiece(fields)
  if kind != "gpt2" or split not in (_SMOLLM, *_SPLITS):
    raise UserError(
        f"{path} has a tokenizer of kind {kind!r} with splits {split!r}; read"
        f" here are 'llama', and 'gpt2' with {', '.join([_SMOLLM, *_SPLITS])}"
    )
  backend = _byte_level(fields, split)
  if {TURN_START, TURN_END} <= set(fields[f"{_KEY}.tokens"]):
    return Tokenizer(backend, compact())
  template = fields.get("tokenizer.chat_template")
  return Tokenizer(
      backend,
      None if template is None else ChatTemplate(template),
      named=_named(fields),
  )


def _named(fields: dict[str, Any]) -> dict[str, str]:
  """The tokens with a role, by the names that Hugging Face gives the roles."""
  keys = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
  return {
      f"{role}_token": fields[f"{_KEY}.tokens"][fields[f"{_KEY}.{key}_token_id"]]
      for role, key in keys.items()
      if f"{_KEY}.{key}_token_id" in fields
  }


def _byte_level(fields: dict[str, Any], split: str) -> tokenizers.Tokenizer:
  tokens = fields[f"{_KEY}.tokens"]
  merges = [tuple(m.split(" ")) for m in fields.get(f"{_KEY}.merges", [])]
  backend = tokenizers.Tokenizer(
      models.BPE(
          vocab={token: i for i, token in enumerate(tokens)},
          merges=merges,
          ignore_merges=split == "llama-bpe",
      )
  )
  if split == _SMOLLM:
    first = pre_tokenizers.Digits(individual_digits=True)
  else:
    pattern = tokenizers.Regex(_SPLITS[split])
    first = pre_tokenizers.Split(pattern, behavior="isolated")
  backend.pre_tokenizer = pre_tokenizers.Sequence([
      first,
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split == _SMOLLM),
  ])
  backend.decoder = decoders.ByteLevel()
  for token, role in zip(tokens, fields[f"{_KEY}.token_type"]):
    if role in (_CONTROL, _USER_DEFINED):
      added = tokenizers.AddedToken(token, special=role == _CONTROL, normalized=False)
      add = backend.add_special_tokens if role == _CONTROL else backend.add_tokens
      add([added])
  return backend


def _sentencepiece(fields: dict[str, Any]) -> Tokenizer:
  from sentencepiece import sentencepiece_model_pb2

  proto = sentencepiece_model_pb2.ModelProto()
  roles = fields[f"{_KEY}.token_type"]
  for token, score, role in zip(
      fields[f"{_KEY}.tokens"], fields[f"{_KEY}.scores"], roles
  ):
    proto.pieces.add(piece=token, score=score, type=role)  # the same numbers
  proto.trainer_spec.model_type = _SENTENCEPIECE_BPE
  proto.trainer_spec.byte_fallback = True
  spec = proto.normalizer_spec
  spec.add_dummy_prefix = fields.get(f"{_KEY}.add_space_prefix", True)
  spec.remove_extra_whitespaces = fields.get(f"{_KEY}.remove_extra_whitespaces", False)
  spec.precompiled_charsmap = bytes(fields.get(f"{_KEY}.precompiled_charsmap", []))
  config = {"tokenizer_class": "PreTrainedTokenizerFast", **_named(fields)}
  files = {
      "tokenizer.model": proto.SerializeToString().decode("latin-1"),
      "tokenizer_config.json": json.dumps(config, indent=1, ensure_ascii=False) + "\n",
  }
  if "tokenizer.chat_template" in fields:
    files["chat_template.jinja"] = fields["tokenizer.chat_template"]
  return Tokenizer.from_files(files)
