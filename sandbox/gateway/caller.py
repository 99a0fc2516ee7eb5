"""POST with retries within a deadline, which names the cause when it gives up.

Busy (429, 503) and unreachable servers are asked again until the deadline,
those that answer 500 or no JSON a few times; a refusal (any other 4xx) is
passed on at once as one. A person is told while it tries.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
import time
from typing import Any

import aiohttp

from clawgym_jax.contracts import json_text
from sandbox.gateway.errors import CallError

CONNECT_SECONDS = 10.0
_TRANSIENT = (408, 409, 425, 429)
_BROKEN_TRIES = 4
_MOST_BYTES = 64 << 20  # of an answer
_SAY_SECONDS = 30.0


class Caller:
  """POST with retries within a deadline; the session lives in the loop that calls."""

  def __init__(self, url: str, deadline: float, api_key: str | None) -> None:
    self._url = url
    self._deadline = deadline
    self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    self._session: aiohttp.ClientSession | None = None
    self._said = -math.inf

  async def close(self) -> None:
    if self._session is not None:
      await self._session.close()
      self._session = None

  async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The JSON answer, or a `CallError` that says whether to try again."""
    if self._session is None:
      self._session = aiohttp.ClientSession(
          connector=aiohttp.TCPConnector(limit=0), headers=self._headers
      )
    end = time.monotonic() + self._deadline
    tries = broken = 0
    while True:
      wait = min(5.0, 0.1 * 2**tries) * random.uniform(0.5, 1.0)
      left = max(end - time.monotonic(), 0.01)
      timeout = aiohttp.ClientTimeout(total=left, sock_connect=CONNECT_SECONDS)
      try:
        async with self._session.post(
            self._url + path, json=body, timeout=timeout
        ) as response:
          if response.status == 200:
            return _object(await _read(response))
          text = (await _read(response)).decode(errors="replace")
          cause = f"the upstream answered {response.status}: {text[:500]}"
          if response.status < 500 and response.status not in _TRANSIENT:
            raise _refusal(text)
          broken += response.status >= 500 and response.status != 503
          wait = _retry_after(response.headers.get("Retry-After"), wait)
      except ValueError as error:
        broken += 1
        cause = f"the upstream's answer is no JSON object ({error})"
      except (aiohttp.ClientError, asyncio.TimeoutError) as error:
        cause = f"no answer from the upstream: {type(error).__name__} {error}".strip()
      tries += 1
      self._say(cause)
      if broken >= _BROKEN_TRIES or time.monotonic() + wait >= end:
        raise CallError(
            503, "upstream_unavailable", f"{cause} (after {tries} tries)", 5.0
        )
      await asyncio.sleep(wait)


  def _say(self, cause: str) -> None:
    """Tells a person that it tries again; now and then is enough."""
    if time.monotonic() - self._said > _SAY_SECONDS:
      self._said = time.monotonic()
      print(
          f"gateway: {cause[:200]}; trying again for up to {self._deadline:g} s a call",
          file=sys.stderr,
          flush=True,
      )


async def json_of(response: aiohttp.ClientResponse) -> Any:
  """The JSON of a good answer, None for any other."""
  try:
    return json_text.parse(await _read(response)) if response.status == 200 else None
  except ValueError:
    return None


async def _read(response: aiohttp.ClientResponse) -> bytes:
  """The whole body; ValueError beyond `_MOST_BYTES`."""
  pieces, size = [], 0
  async for piece in response.content.iter_any():
    size += len(piece)
    if size > _MOST_BYTES:
      raise ValueError(f"more than {_MOST_BYTES} bytes")
    pieces.append(piece)
  return b"".join(pieces)


def _object(body: bytes) -> dict[str, Any]:
  value = json_text.parse(body)
  if not isinstance(value, dict):
    raise ValueError(f"it is {type(value).__name__}")
  return value


def _refusal(text: str) -> CallError:
  """A refusal that will be repeated: passed on as 400 with its own code."""
  try:
    error = json_text.parse(text)["error"]
  except (ValueError, KeyError, TypeError):
    error = text[:500]
  if not isinstance(error, dict):
    error = {"message": error}
  return CallError(
      400,
      error.get("code") or "upstream_refused",
      f"the upstream refused: {error.get('message')}",
  )


def _retry_after(header: str | None, default: float) -> float:
  try:
    return max(0.0, min(float(header), 60.0)) if header else default
  except ValueError:
    return default
