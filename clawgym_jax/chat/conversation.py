"""Messages as token ids, laid out so that a conversation only ever grows.

A turn is `<|im_start|>role\\n` + body + `<|im_end|>\\n`, and each of the three
parts is encoded by itself. So the ids of a longer conversation start with the
ids of the shorter one, and what a model sampled is kept as it was sampled:
`Conversation` never encodes text that it decoded. `render` gives the same ids
for a written conversation, which is what supervised training uses.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.errors import require

Message = dict[str, Any]


@dataclass(frozen=True)
class Span:
  """Consecutive ids of one message; `trained` if a model is to say them."""

  ids: list[int]
  trained: bool
  message_index: int


def render(
    tokenizer: Tokenizer, messages: list[Message], tools: list[dict[str, Any]] | None
) -> list[Span]:
  """The whole conversation. Assistant bodies and their end of turn are trained."""
  spans = []
  for index, message in enumerate(messages):
    trained = message["role"] == "assistant"
    body = tokenizer.encode(_body(message, tools if index == 0 else None))
    spans += [
        Span(_header(tokenizer, message["role"]), False, index),
        Span(body + [tokenizer.eos_id], trained, index),
        Span(tokenizer.encode("\n"), False, index),
    ]
  return spans


def prompt_ids(
    tokenizer: Tokenizer, messages: list[Message], tools: list[dict[str, Any]] | None
) -> list[int]:
  """Ids that ask for the next assistant turn."""
  ids = [i for span in render(tokenizer, messages, tools) for i in span.ids]
  return ids + _header(tokenizer, "assistant")


class Conversation:
  """A conversation with a model, as the exact ids that it saw and sampled.

  `ids` alternates prompts and responses; after `start` or `extend` it asks
  for a response, after `append_response` it waits for messages.
  """

  def __init__(self, tokenizer: Tokenizer, ids: list[int], *, awaiting: bool):
    self._tokenizer = tokenizer
    self.ids = ids
    self._awaiting = awaiting

  @classmethod
  def start(
      cls,
      tokenizer: Tokenizer,
      messages: list[Message],
      tools: list[dict[str, Any]] | None,
  ) -> Conversation:
    return cls(tokenizer, prompt_ids(tokenizer, messages, tools), awaiting=True)

  def append_response(self, response_ids: list[int]) -> None:
    """Adds what the model sampled, as sampled."""
    require(self._awaiting, "a response without a prompt before it")
    self.ids = self.ids + list(response_ids)
    self._awaiting = False

  def extend(self, messages: list[Message]) -> list[int]:
    """Adds messages after a response; returns their ids, generation prompt included.

    A response that was cut before its end of turn is closed first, by ids of
    the prompt, which nothing trains.
    """
    require(not self._awaiting, "messages before the response to the last ones")
    closing = [] if self.ids[-1] == self._tokenizer.eos_id else [self._tokenizer.eos_id]
    delta = closing + self._tokenizer.encode("\n")
    delta += prompt_ids(self._tokenizer, messages, None)
    self.ids = self.ids + delta
    self._awaiting = True
    return delta


def _header(tokenizer: Tokenizer, role: str) -> list[int]:
  return [tokenizer.turn_start_id, *tokenizer.encode(f"{role}\n")]


def _body(message: Message, tools: list[dict[str, Any]] | None) -> str:
  text = _text(message.get("content"))
  if tools and message["role"] == "system":
    text += "\nTools:" + "".join("\n" + _signature(tool["function"]) for tool in tools)
  calls = [_call(call["function"]) for call in message.get("tool_calls") or []]
  return "\n".join([text, *calls] if text else calls)


def _text(content: Any) -> str:
  """OpenAI content is a string, a list of parts, or null."""
  if content is None or isinstance(content, str):
    return content or ""
  require(
      all(part.get("type") == "text" for part in content),
      "only text content can be laid out as tokens",
  )
  return "".join(part["text"] for part in content)


def _signature(function: dict[str, Any]) -> str:
  names = ", ".join(function.get("parameters", {}).get("properties", {}))
  description = function.get("description")
  return f"{function['name']}({names})" + (f" {description}" if description else "")


def _call(function: dict[str, Any]) -> str:
  arguments = function["arguments"]
  if not isinstance(arguments, str):
    arguments = json.dumps(arguments, ensure_ascii=False)
  return f'<tool_call>{{"name": "{function["name"]}", "arguments": {arguments}}}</tool_call>'
