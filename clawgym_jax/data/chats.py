"""Conversations for supervised training, from JSON lines.

A line holds `messages` and may hold `tools`, `task_id`, `reward`. A
conversation longer than a row loses whole turns from its end, never a part of
one; one whose first answer doesn't fit is dropped. Both are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.chat.conversation import render
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.data.sequence import Sequence, supervised


@dataclass(frozen=True)
class Corpus:
  """Tokenised conversations; `dropped` ones are not among them."""

  sequences: list[Sequence]
  truncated: int
  dropped: int

  @property
  def tokens(self) -> int:
    return sum(len(s) for s in self.sequences)

  @property
  def trained_tokens(self) -> int:
    return sum(s.trained_tokens for s in self.sequences)


def read_chats(path: Path) -> list[dict[str, Any]]:
  """The lines of a chats file; `UserError` names the first bad one."""
  if not path.is_file():
    raise UserError(
        f"{path} is not a file: give chats as written by"
        " `python -m sandbox.curate --to=chat_jsonl --out=FILE`"
    )
  chats = []
  with open(path, encoding="utf-8") as file:
    for number, line in enumerate(file, 1):
      if not line.strip():
        continue
      try:
        chat = json_text.parse(line)
        roles = [message["role"] for message in chat["messages"]]
      except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} line {number} is not a chat ({error!r}): it needs"
            ' {"messages": [{"role": …, "content": …}, …]}'
        ) from None
      if "assistant" not in roles:
        raise UserError(f"{path} line {number} has no assistant message to train on")
      chats.append(chat)
  if not chats:
    raise UserError(f"{path} holds no chats: curate with a lower --min_reward")
  return chats


def texts(chats: list[dict[str, Any]]) -> list[str]:
  """Every string of the chats, to train a vocabulary on."""
  return [json_text.dump(chat) for chat in chats]


def tokenize(
    chat: dict[str, Any], tokenizer: Tokenizer, max_tokens: int
) -> tuple[Sequence | None, bool]:
  """The conversation's ids up to the last turn that fits, and if it was cut.

  None if not even the first answer fits.
  """
  tokens: list[int] = []
  trained: list[bool] = []
  whole = 0  # tokens up to the end of the last answer that fits
  cut = False
  for span in render(tokenizer, chat["messages"], chat.get("tools")):
    tokens += span.ids
    trained += [span.trained] * len(span.ids)
    if span.trained and len(tokens) <= max_tokens:
      whole = len(tokens)
    elif span.trained:
      cut = True
      break
  if not whole:
    return None, False
  return supervised(tokens[:whole], trained[:whole]), cut


def tokenize_all(
    chats: list[dict[str, Any]], tokenizer: Tokenizer, max_tokens: int
) -> Corpus:
  """Tokenises chats for rows of `max_tokens`."""
  sequences, truncated, dropped = [], 0, 0
  for number, chat in enumerate(chats, 1):
    try:
      sequence, cut = tokenize(chat, tokenizer, max_tokens)
    except (RecordError, KeyError) as error:
      raise UserError(f"chat {number} can't be laid out: {error}") from None
    truncated += cut
    dropped += sequence is None
    if sequence is not None:
      sequences.append(sequence)
  if not sequences:
    raise UserError(
        f"no chat fits a row of {max_tokens} tokens: raise the row length"
    )
  return Corpus(sequences, truncated, dropped)
