"""A vocabulary with a chat format, loaded from and saved to Hugging Face files.

Text from outside is encoded as text: `encode` never turns "<|im_end|>" inside
a message into the control token, so no message can close its own turn.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import tokenizers

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_atomic

TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
CHAT_FORMATS = ("compact",)


class Tokenizer:
  """`backend` must know the control tokens `<|im_start|>` and `<|im_end|>`."""

  def __init__(self, backend: tokenizers.Tokenizer, chat_format: str = "compact"):
    if chat_format not in CHAT_FORMATS:
      raise UserError(
          f"chat format {chat_format!r} is not known; known: {CHAT_FORMATS}"
      )
    self.chat_format = chat_format
    self._backend = backend
    self._backend.encode_special_tokens = True
    self.turn_start_id = self.token_id(TURN_START)
    self.eos_id = self.token_id(TURN_END)
    self.pad_id = self.eos_id

  @property
  def vocab_size(self) -> int:
    return self._backend.get_vocab_size(with_added_tokens=True)

  def token_id(self, token: str) -> int:
    """The id of exactly this token; `UserError` if it is not in the vocabulary."""
    token_id = self._backend.token_to_id(token)
    if token_id is None:
      raise UserError(f"the tokenizer has no token {token!r}")
    return token_id

  def encode(self, text: str) -> list[int]:
    """Ids of plain text; control tokens written in it stay text."""
    return self._backend.encode(text, add_special_tokens=False).ids

  def decode(self, ids: list[int]) -> str:
    """The text of `ids`, control tokens included."""
    return self._backend.decode(ids, skip_special_tokens=False)

  def to_files(self) -> dict[str, str]:
    """Hugging Face file names to contents."""
    template = (
        resources.files("clawgym_jax.chat")
        .joinpath(f"{self.chat_format}.jinja")
        .read_text()
    )
    special = {"bos_token": TURN_START, "eos_token": TURN_END, "pad_token": TURN_END}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "chat_format": self.chat_format,
        "chat_template": template,
        **special,
    }
    # The switch of the running backend is not part of the vocabulary's file.
    self._backend.encode_special_tokens = False
    try:
      backend = self._backend.to_str()
    finally:
      self._backend.encode_special_tokens = True
    return {
        "tokenizer.json": backend,
        "tokenizer_config.json": _dumps(config),
        "special_tokens_map.json": _dumps(special),
        "chat_template.jinja": template,
    }

  @classmethod
  def from_files(cls, files: dict[str, str]) -> Tokenizer:
    """Reads what `to_files` made, or the same files of a known chat format."""
    config = json.loads(files.get("tokenizer_config.json", "{}"))
    if "chat_format" not in config:
      raise UserError(
          "tokenizer_config.json names no chat_format, so its conversations"
          " can't be laid out; convert the model with clawgym_jax.convert"
      )
    return cls(
        tokenizers.Tokenizer.from_str(files["tokenizer.json"]),
        config["chat_format"],
    )

  def save(self, directory: Path) -> None:
    for name, text in self.to_files().items():
      write_atomic(directory / name, text)

  @classmethod
  def load(cls, directory: Path) -> Tokenizer:
    try:
      return cls.from_files({
          name: (directory / name).read_text()
          for name in ("tokenizer.json", "tokenizer_config.json")
      })
    except FileNotFoundError as error:
      raise UserError(
          f"{error.filename} is missing: {directory} is not a model folder"
          " written by clawgym_jax.convert"
      ) from None


def _dumps(value: Any) -> str:
  return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
