"""What answers a call: an engine that gives token ids, or a chat API.

`TokenUpstream` lays the conversation out itself: the ids that the parent step
holds, as they were seen and sampled, then the ids of the new messages.
Nothing that was sampled is ever encoded again. `ChatUpstream` knows text
only; its steps say so by having no ids, and can't be used for RL.

Every call has a deadline in seconds that includes its retries. Busy (429,
503), unreachable and broken upstreams are asked again until then; a refusal
(any other 4xx) is passed on at once as one.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from clawgym_jax.chat.conversation import Conversation
from clawgym_jax.chat.response import detect_format, opens_thought, parse_response
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.trajectory import Message
from sandbox.gateway.errors import CallError, bad_request
from sandbox.gateway.messages import Request
from sandbox.gateway.tree import Place

_TRANSIENT = (408, 409, 425, 429)
_BROKEN_TRIES = 4  # of an upstream that answers 500 or worse than busy
_CONNECT_SECONDS = 10.0
_PROMPT_END = 16  # tokens at a prompt's end that may open a thought


@dataclass(frozen=True)
class Reply:
  """An upstream's complete answer.

  `prompt_ids` are those beyond the parent's; all ids and log-probs are None
  where the upstream gives text only. `usage` counts tokens. `fork_cause` says
  why the prompt doesn't extend the parent that it was meant to extend: then
  `prompt_ids` are the whole prompt.
  """

  message: Message
  finish_reason: str
  sampling: dict[str, Any]
  usage: dict[str, int]
  prompt_ids: list[int] | None = None
  columns: dict[str, list[Any]] = field(default_factory=dict)
  fork_cause: str | None = None


class _Http:
  """POST with retries within a deadline; the session lives in the loop that calls."""

  def __init__(self, url: str, deadline: float, api_key: str | None) -> None:
    self._url = url
    self._deadline = deadline
    self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    self._session: aiohttp.ClientSession | None = None

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
      timeout = aiohttp.ClientTimeout(total=left, sock_connect=_CONNECT_SECONDS)
      try:
        async with self._session.post(
            self._url + path, json=body, timeout=timeout
        ) as response:
          if response.status == 200:
            return await response.json(content_type=None)
          text = await response.text()
          cause = f"the upstream answered {response.status}: {text[:500]}"
          if response.status < 500 and response.status not in _TRANSIENT:
            raise _refusal(text)
          broken += response.status >= 500 and response.status != 503
          wait = _retry_after(response.headers.get("Retry-After"), wait)
      except (aiohttp.ClientError, asyncio.TimeoutError, ValueError) as error:
        cause = f"no answer from the upstream: {type(error).__name__} {error}".strip()
      tries += 1
      if broken >= _BROKEN_TRIES or time.monotonic() + wait >= end:
        raise CallError(
            503, "upstream_unavailable", f"{cause} (after {tries} tries)", 5.0
        )
      await asyncio.sleep(wait)


class TokenUpstream:
  """The engine's `/generate`: token ids in, token ids and log-probs out."""

  def __init__(
      self, url: str, info: dict[str, Any], tokenizer: Tokenizer, deadline: float
  ) -> None:
    self.model: str = info["model"]
    self._max_len: int = info["max_len"]
    self._tokenizer = tokenizer
    self._format = detect_format(tokenizer.template.literals)
    self._http = _Http(url, deadline, None)

  async def close(self) -> None:
    await self._http.close()

  async def ask(
      self, request: Request, place: Place, sampling: dict[str, Any]
  ) -> Reply:
    tokenizer = self._tokenizer
    fork_cause = None
    try:
      prompt, delta = self._prompt(request, place)
    except RecordError as error:
      if place.parent is None:
        raise bad_request(str(error)) from None
      # A template may leave out the thinking of earlier turns. That is no reason
      # to refuse: a policy could make its conversation one that can't be judged.
      fork_cause = "template_rewrites"
      try:
        prompt, delta = self._prompt(request, Place(None, request.messages, fork_cause))
      except RecordError:
        raise bad_request(str(error)) from None
    room = self._max_len - len(prompt)
    if room < 1:
      raise CallError(
          400,
          "context_length_exceeded",
          f"the prompt has {len(prompt)} tokens, the model's context {self._max_len}",
      )
    sampling = {"temperature": 1.0, "top_p": 1.0, "max_tokens": room, **sampling}
    sampling["max_tokens"] = min(int(sampling["max_tokens"]), room)
    sampling.setdefault("seed", secrets.randbits(63))
    raw = await self._http.post(
        "/generate",
        {
            "prompt_ids": prompt,
            "stop_ids": tokenizer.eos_ids,
            **{k: sampling[k] for k in ("temperature", "top_p", "max_tokens", "seed")},
        },
    )
    ids = raw["ids"]
    said = ids[:-1] if ids and ids[-1] in tokenizer.eos_ids else ids
    return Reply(
        message=parse_response(
            tokenizer.decode(said),
            self._format,
            tools=request.tools,
            finish_reason=raw["finish_reason"],
            in_thought=opens_thought(tokenizer.decode(prompt[-_PROMPT_END:])),
        ),
        finish_reason=raw["finish_reason"],
        sampling=sampling,
        usage=_usage(len(prompt), len(ids)),
        prompt_ids=delta,
        columns={
            "response_ids": ids,
            **{
                name: raw[name]
                for name in ("logprobs", "untempered_logprobs", "policy_versions")
            },
        },
        fork_cause=fork_cause,
    )

  def _prompt(self, request: Request, place: Place) -> tuple[list[int], list[int]]:
    """The whole prompt, and its ids beyond the parent's.

    `RecordError` if the template refuses the messages, or would write the
    parent's turns in another way once they follow.
    """
    tokenizer = self._tokenizer
    if place.parent is None:
      ids = Conversation.start(tokenizer, place.messages, request.tools).ids
      return ids, ids
    turns = [
        (node.step.prompt_ids, node.step.response_ids) for node in place.parent.path()
    ]
    held = request.messages[: len(request.messages) - len(place.messages)]
    conversation = Conversation.resume(tokenizer, turns, held, request.tools)
    delta = conversation.extend(place.messages)
    return conversation.ids, delta


class ChatUpstream:
  """Any OpenAI chat API: text in, text out."""

  def __init__(
      self, url: str, model: str, deadline: float, api_key: str | None
  ) -> None:
    self.model = model
    self._http = _Http(url, deadline, api_key)

  async def close(self) -> None:
    await self._http.close()

  async def ask(
      self, request: Request, place: Place, sampling: dict[str, Any]
  ) -> Reply:
    body: dict[str, Any] = {
        "model": self.model, "messages": request.messages, **sampling
    }  # fmt: skip
    if request.tools:
      body["tools"] = request.tools
    raw = await self._http.post("/chat/completions", body)
    try:
      (choice,) = raw["choices"]
      message, calls = choice["message"], choice["message"].get("tool_calls") or []
      clean: Message = {"role": "assistant", "content": message.get("content")}
      if calls:
        clean["tool_calls"] = [
            {
                "id": f"call{secrets.token_hex(8)}",  # letters and digits survive
                "type": "function",
                "function": {
                    "name": call["function"]["name"],
                    "arguments": call["function"]["arguments"],
                },
            }
            for call in calls
        ]
      usage = raw.get("usage") or {}
      return Reply(
          message=clean,
          finish_reason="length" if choice["finish_reason"] == "length" else "stop",
          sampling=sampling,
          usage=_usage(
              usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
          ),
      )
    except (KeyError, TypeError, ValueError) as error:
      raise CallError(
          502, "upstream_malformed", f"the upstream's answer lacks {error}"
      ) from None


Upstream = TokenUpstream | ChatUpstream


async def connect(
    url: str,
    *,
    deadline: float = 600.0,
    model: str | None = None,
    api_key: str | None = None,
) -> Upstream:
  """Finds out what is at `url`. `UserError` if nothing that answers as expected.

  `deadline` is the seconds a call may take, retries included. `model` and
  `api_key` are for chat APIs; the first model they offer is the default.
  """
  url = url.rstrip("/")
  timeout = aiohttp.ClientTimeout(total=30.0, sock_connect=_CONNECT_SECONDS)
  headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
  try:
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
      engine = url.removesuffix("/v1")
      async with session.get(f"{engine}/info") as response:
        info = await _json(response)
      if isinstance(info, dict) and info.get("kind") == "tokens":
        async with session.get(f"{engine}/tokenizer") as response:
          files = await response.json(content_type=None)
        return TokenUpstream(engine, info, Tokenizer.from_files(files), deadline)
      base = url if url.endswith("/v1") else f"{url}/v1"
      if model is None:
        async with session.get(f"{base}/models") as response:
          models = await _json(response)
        if not models:
          raise UserError(
              f"{url} is neither an engine nor an OpenAI chat API: it offers no"
              f" /info and {base}/models answers {response.status}"
          )
        model = models["data"][0]["id"]
      return ChatUpstream(base, model, deadline, api_key)
  except (aiohttp.ClientError, asyncio.TimeoutError, KeyError, IndexError) as error:
    raise UserError(
        f"can't use the upstream {url}: {type(error).__name__} {error}; start it,"
        " or correct its address"
    ) from None


async def _json(response: aiohttp.ClientResponse) -> Any:
  """The JSON of a good answer, None for any other."""
  try:
    return await response.json(content_type=None) if response.status == 200 else None
  except ValueError:
    return None


def _refusal(text: str) -> CallError:
  """A refusal that will be repeated: passed on as 400 with its own code."""
  try:
    error = json.loads(text)["error"]
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


def _usage(prompt: int, completion: int) -> dict[str, int]:
  return {
      "prompt_tokens": prompt,
      "completion_tokens": completion,
      "total_tokens": prompt + completion,
  }
