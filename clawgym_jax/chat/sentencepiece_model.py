"""Sentencepiece models as backends of the `tokenizers` library, ids unchanged.

Unigram and BPE models are read from their own file, with what it says about
normalisation, the space before the first word, bytes for unknown characters,
and pieces that are matched whole. Control pieces (`</s>`) become special
tokens; `Tokenizer` sees to it that no text turns into one, as sentencepiece does.
"""

from __future__ import annotations

from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from clawgym_jax.contracts.errors import UserError

_SPACE = "\u2581"
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5
_UNIGRAM, _BPE = 1, 2


def backend(model: bytes, *, legacy: bool = True) -> tokenizers.Tokenizer:
  """The tokenizer of a serialised model. `UserError` if it is none, or another kind.

  Where the model adds a space in front of text, `legacy` adds one after every
  control token too, as older Llama tokenizers do (`legacy` in their
  tokenizer_config.json); otherwise only the very start gets one, and text that
  starts with a space itself gets none.
  """
  proto = _read(model)
  pieces = [(p.piece, p.score, p.type) for p in proto.pieces]
  kind = proto.trainer_spec.model_type
  if kind == _UNIGRAM:
    made = _unigram(pieces)
  elif kind == _BPE:
    made = _bpe(pieces, proto.trainer_spec.byte_fallback)
  else:
    raise UserError("a sentencepiece model of words or characters is not read here")
  if proto.trainer_spec.treat_whitespace_as_suffix:
    raise UserError("a sentencepiece model with spaces as suffixes is not read here")
  spec = proto.normalizer_spec
  steps: list[Any] = []
  if spec.precompiled_charsmap:
    steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
  if spec.remove_extra_whitespaces:
    steps += [
        normalizers.Strip(left=True, right=True),
        normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
    ]
  back = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
  if spec.add_dummy_prefix:
    back.append(decoders.Strip(" ", 1, 0))
    # Text goes on after a piece that is matched whole.
    once = not legacy or any(role == _USER_DEFINED for _, _, role in pieces)
    if once and spec.remove_extra_whitespaces:
      raise UserError(
          "a sentencepiece model that removes spaces and adds one in front of the"
          " first word alone is not read here: give its tokenizer.json"
      )
    if once:
      made.pre_tokenizer = pre_tokenizers.Metaspace(
          replacement=_SPACE, prepend_scheme="first", split=False
      )
    else:
      steps.append(normalizers.Prepend(_SPACE))
  made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
  made.decoder = decoders.Sequence(back)
  for piece, _, role in pieces:
    if role in (_CONTROL, _USER_DEFINED):
      token = tokenizers.AddedToken(
          piece, special=role == _CONTROL, normalized=role == _USER_DEFINED
      )
      (made.add_special_tokens if role == _CONTROL else made.add_tokens)([token])
  return made


def special_tokens(model: bytes) -> dict[str, str]:
  """`bos_token`, `eos_token`, `pad_token`, `unk_token`: those the model has."""
  proto = _read(model)
  spec = proto.trainer_spec
  return {
      f"{name}_token": proto.pieces[i].piece
      for name in ("bos", "eos", "pad", "unk")
      if 0 <= (i := getattr(spec, f"{name}_id")) < len(proto.pieces)
  }


def _read(model: bytes) -> Any:
  from google.protobuf.message import DecodeError
  from sentencepiece import sentencepiece_model_pb2

  proto = sentencepiece_model_pb2.ModelProto()
  try:
    proto.ParseFromString(model)
  except DecodeError:
    proto.Clear()
  if not proto.pieces:
    raise UserError("the sentencepiece model is damaged: copy the file again")
  return proto


def _unigram(pieces: list[tuple[str, float, int]]) -> tokenizers.Tokenizer:
  unknown = [i for i, (_, _, role) in enumerate(pieces) if role == _UNKNOWN]
  return tokenizers.Tokenizer(
      models.Unigram(
          [(piece, score) for piece, score, _ in pieces],
          unk_id=unknown[0] if unknown else None,
          byte_fallback=any(piece == "<0x00>" for piece, _, _ in pieces),
      )
  )


def _bpe(pieces: list[tuple[str, float, int]], fallback: bool) -> tokenizers.Tokenizer:
  """Two pieces merge as early as the score of what they make is high."""
  vocabulary = {piece: i for i, (piece, _, _) in enumerate(pieces)}
  parts = {p for p, _, role in pieces if role not in (_UNKNOWN, _CONTROL, _UNUSED)}
  merges = []
  for piece, score, _ in pieces:
    if piece not in parts:
      continue
    for cut in range(1, len(piece)):
      left, right = piece[:cut], piece[cut:]
      if left in parts and right in parts:
        merges.append((-score, vocabulary[left], vocabulary[right], left, right))
  merges.sort()
  unknown = next((piece for piece, _, role in pieces if role == _UNKNOWN), None)
  return tokenizers.Tokenizer(
      models.BPE(
          vocab=vocabulary,
          merges=[merge[-2:] for merge in merges],
          unk_token=unknown,
          fuse_unk=True,
          byte_fallback=fallback,
      )
  )
