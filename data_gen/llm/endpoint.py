"""Asks an OpenAI-compatible API, boundedly, and names the cause when it gives up.

What may pass (no connection, a cut one, no answer in time, 408, 409, 429, 5xx, an
answer that is no chat completion) is tried a few times, a full server more often,
after a wait that doubles or the longer one that the server asks for; anything else
is not. `Lost` says that
nothing can be decided now. A wrong key or address is the person's to mend:
`UserError`. Once several calls in a row were given up the endpoint counts as
down, and every further call is lost at once. The key is in no text that leaves here.
"""

from __future__ import annotations

import asyncio
import email.utils
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from data_gen.llm.settings import Settings

_TRIES = 5
_BUSY, _BUSY_TRIES = ("http_429", "http_503"), 10
_REPLY_SECONDS = 600.0
_CONNECT_SECONDS = 10.0
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 60.0
_DOWN = 5  # calls given up in a row
_MOST_BYTES = 16 << 20  # of an answer
_MAY_PASS = (408, 409, 425, 429)


class Lost(Exception):
  """No answer, for no fault of the one who asks; `cause` is of a few kinds.

  `status` is that of a refusal that asking again would not change, else 0.
  """

  def __init__(self, cause: str, text: str, status: int = 0) -> None:
    super().__init__(f"{cause}: {text}")
    self.cause = cause
    self.status = status


@dataclass(frozen=True)
class Answer:
  """One reply.

  Attributes:
    message: the assistant message as it came, JSON throughout.
    finish_reason: what the API says: stop, length, tool_calls, content_filter, …
    prompt_tokens, completion_tokens: what the API says it cost; 0 where it doesn't.
  """

  message: dict[str, Any]
  finish_reason: str
  prompt_tokens: int = 0
  completion_tokens: int = 0


class Endpoint:
  """Use it as `async with`, in the loop that asks."""

  def __init__(
      self,
      settings: Settings,
      *,
      reply_seconds: float = _REPLY_SECONDS,
      first_wait: float = _FIRST_WAIT,
  ) -> None:
    self._url = f"{settings.endpoint}/chat/completions"
    self._key = settings.api_key
    self._reply_seconds = reply_seconds
    self._first_wait = first_wait
    self._given_up = 0  # calls in a row
    self._http: aiohttp.ClientSession | None = None

  async def __aenter__(self) -> Endpoint:
    headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
    self._http = aiohttp.ClientSession(
        headers=headers,
        timeout=aiohttp.ClientTimeout(
            total=self._reply_seconds, sock_connect=_CONNECT_SECONDS
        ),
    )
    return self

  async def __aexit__(self, *exception: object) -> None:
    await self._http.close()

  async def ask(self, body: dict[str, Any], failed: Callable[[str], None]) -> Answer:
    """The reply to `body`; each try that gave none is told to `failed` by its cause."""
    text = json_text.dump(body).encode()
    tries = 0
    while True:
      if self._given_up >= _DOWN:
        raise Lost("endpoint_down", f"{_DOWN} calls in a row were given up")
      try:
        answer = await self._once(text)
      except _Passing as error:
        failed(error.cause)
        tries += 1
        if tries >= (_BUSY_TRIES if error.cause in _BUSY else _TRIES):
          self._given_up += 1
          raise Lost(error.cause, f"{error} (tried {tries} times)") from None
        wait = max(error.wait, self._first_wait * 2 ** (tries - 1))
      except Lost as error:
        failed(error.cause)
        self._given_up += 1
        raise
      else:
        self._given_up = 0
        return answer
      await asyncio.sleep(min(_LONGEST_WAIT, wait))

  async def _once(self, body: bytes) -> Answer:
    try:
      async with self._http.post(
          self._url,
          data=body,
          headers={"Content-Type": "application/json"},
          allow_redirects=False,  # or the key would follow to another server
      ) as response:
        raw = await response.content.read(_MOST_BYTES + 1)
        while len(raw) <= _MOST_BYTES and not response.content.at_eof():
          raw += await response.content.read(_MOST_BYTES + 1 - len(raw))
        status = response.status
        wait = _asked_wait(response.headers.get("Retry-After"))
    except TimeoutError:
      raise _Passing("timeout", f"no reply within {self._reply_seconds:g} s") from None
    except (aiohttp.ClientError, ConnectionError) as error:
      raise _Passing("connection", self._clean(repr(error))) from None
    said = self._clean(raw.decode(errors="replace"))
    if status == 200:
      if len(raw) > _MOST_BYTES:
        raise _Passing("malformed", f"an answer of more than {_MOST_BYTES} bytes")
      return _answer(said)
    if status in _MAY_PASS or status >= 500:
      raise _Passing(f"http_{status}", said[:300], wait)
    if status in (401, 403):
      raise UserError(
          f"the endpoint refuses the key ({status}): put one that it takes into an"
          f" environment variable and name it with --api_key_env. It says: {said[:200]}"
      )
    if status == 404:
      raise UserError(
          f"the endpoint has no {self._url}, or not that model: correct --endpoint or"
          f" --model. It says: {said[:200]}"
      )
    raise Lost(f"http_{status}", said[:300], status)

  def _clean(self, text: str) -> str:
    return text.replace(self._key, "***") if self._key else text


class _Passing(Exception):
  """A try without a reply, which another may give after `wait` seconds at least."""

  def __init__(self, cause: str, text: str, wait: float = 0.0) -> None:
    super().__init__(text)
    self.cause = cause
    self.wait = wait


def _asked_wait(header: str | None) -> float:
  """The seconds of a Retry-After header, which may name a date; 0 without a sound
  one."""
  if not header:
    return 0.0
  try:
    seconds = float(header)
  except ValueError:
    try:
      seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
    except ValueError:
      return 0.0
  return seconds if math.isfinite(seconds) else 0.0


def _answer(text: str) -> Answer:
  """The first choice; `_Passing` where `text` is no chat completion."""
  try:
    raw = json_text.parse(text)
    choice = raw["choices"][0]
    message = choice["message"]
    calls = message.get("tool_calls") or []
    sound = (
        json_text.recordable(message)
        and isinstance(message.get("content"), str | list | None)
        and isinstance(calls, list)
        and all(isinstance(call, dict) for call in calls)
    )
  except (ValueError, LookupError, TypeError, AttributeError):
    sound = False
  if not sound:
    raise _Passing("malformed", f"no chat completion: {text[:200]}")
  usage = raw.get("usage")
  usage = usage if isinstance(usage, dict) else {}
  return Answer(
      {"role": "assistant", **message},
      str(choice.get("finish_reason") or "stop"),
      *(_count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")),
  )


def _count(value: Any) -> int:
  return value if type(value) is int and value >= 0 else 0
