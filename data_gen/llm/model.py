"""The model behind an endpoint, every reply of it kept.

A request that was answered once is answered from the cache, a bad answer too: what is
done about that is the asker's to say, in another request. So a run that is
repeated gets the same replies, at no cost and with the endpoint down.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, TypeVar

from data_gen.llm.cache import Cache
from data_gen.llm.endpoint import Answer, Endpoint
from data_gen.llm.replies import BadReply
from data_gen.llm.settings import Settings
from data_gen.llm.tally import Paid, Tally

Message = dict[str, Any]
T = TypeVar("T")

_TRIES = 3  # for a reply that is of use
_MOST_QUOTED = 20_000  # characters of a bad reply that its writer sees again
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


class Unusable(Exception):
  """No reply of several was of use; `cause` is the last one's kind."""

  def __init__(self, stage: str, cause: str, text: str) -> None:
    super().__init__(f"{stage}: no usable reply, the last one {cause}: {text}")
    self.cause = cause


class Model:
  """What answers; what that costs is counted in `paid`."""

  def __init__(
      self, settings: Settings, endpoint: Endpoint, cache: Cache, paid: Paid
  ) -> None:
    self.name = settings.model
    self._paid = paid
    self._settings = settings
    self._endpoint = endpoint
    self._cache = cache

  async def reply(
      self,
      stage: str,
      messages: list[Message],
      tally: Tally,
      *,
      tools: list[dict[str, Any]] | None = None,
      again: int = 0,
  ) -> Answer:
    """The answer to `messages`; another one for each `again`. `Lost` if none came."""
    body: dict[str, Any] = {"model": self._settings.model, "messages": messages}
    if tools:
      body["tools"] = tools
    if self._settings.max_tokens:
      body["max_tokens"] = self._settings.max_tokens
    asked = {"what": "reply", "body": body, "again": again}
    kept = self._cache.get(asked)
    if kept is None:
      answer = await self._endpoint.ask(
          body, lambda cause: self._paid.fail(stage, cause)
      )
      self._paid.reply(stage, answer.prompt_tokens, answer.completion_tokens)
      self._cache.put(asked, dataclasses.asdict(answer))
    else:
      answer = Answer(**kept)
    tally.reply(stage, answer.prompt_tokens, answer.completion_tokens)
    return answer

  async def written(
      self,
      stage: str,
      messages: list[Message],
      parse: Callable[[str], T],
      tally: Tally,
  ) -> T:
    """What `parse` makes of a reply; one that it refuses is handed back with the
    reason, boundedly. `Unusable` in the end."""
    messages = list(messages)
    for number in range(_TRIES):
      answer = await self.reply(stage, messages, tally)
      text = ""
      try:
        text = said(answer)
        return parse(text)
      except BadReply as error:
        tally.discard(stage, error.cause)
        last = error
      messages += [
          {"role": "assistant", "content": text[:_MOST_QUOTED] or "(nothing usable)"},
          {
              "role": "user",
              "content": f"Reply {number + 1} can't be used: {last}. Write the whole"
              " answer once more, in the form that was asked for.",
          },
      ]
    raise Unusable(stage, last.cause, str(last)[:300])


def said(answer: Answer) -> str:
  """The text of a reply less its thoughts; `BadReply` where there is none to use."""
  content = answer.message.get("content")
  if isinstance(content, list):
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    content = "".join(part for part in parts if isinstance(part, str))
  text = _THOUGHT.sub("", content or "").strip()
  if answer.finish_reason == "length":
    raise BadReply("truncated", "it was cut before its end; be shorter")
  if answer.finish_reason == "content_filter" or answer.message.get("refusal"):
    raise BadReply("refused", "it was a refusal; choose something harmless")
  if not text:
    raise BadReply("empty", "it held no text")
  return text
