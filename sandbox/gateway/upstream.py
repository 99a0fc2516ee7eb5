"""What answers a call: an engine that gives token ids, or a chat API.

`TokenUpstream` lays the conversation out itself: the ids that the parent step
holds, as they were seen and sampled, then the ids of the new messages.
Nothing that was sampled is ever encoded again. `ChatUpstream` knows text
only; its steps say so by having no ids, and can't be used for RL.

An answer that is not what its kind of upstream gives is an error with its
cause, never half recorded.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp

from clawgym_jax.chat.conversation import Conversation, thought_of
from clawgym_jax.chat.response import detect_format, opens_thought, parse_response
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.trajectory import Message
from sandbox.gateway.caller import CONNECT_SECONDS, Caller, json_of
from sandbox.gateway.errors import CallError, bad_request
from sandbox.gateway.messages import Request
from sandbox.gateway.tree import Node, Place

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


class TokenUpstream:
  """The engine's `/generate`: token ids in, token ids and log-probs out."""

  def __init__(
      self, url: str, info: dict[str, Any], tokenizer: Tokenizer, deadline: float
  ) -> None:
    self.model: str = info["model"]
    self._max_len: int = info["max_len"]
    self._tokenizer = tokenizer
    self._format = detect_format(tokenizer.template.literals)
    # Read once for each response: a call costs what is new in it.
    self._thoughts: WeakKeyDictionary[Node, str | None] = WeakKeyDictionary()
    self._http = Caller(url, deadline, None)

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
    _check_tokens(raw, tokenizer.vocab_size)
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
        (node.step.prompt_ids, node.step.response_ids, self._thought(node))
        for node in place.parent.path()
    ]
    held = request.messages[: len(request.messages) - len(place.messages)]
    conversation = Conversation.resume(tokenizer, turns, held, request.tools)
    delta = conversation.extend(place.messages)
    return conversation.ids, delta

  def _thought(self, node: Node) -> str | None:
    if node not in self._thoughts:
      self._thoughts[node] = thought_of(self._tokenizer, node.step.response_ids)
    return self._thoughts[node]


class ChatUpstream:
  """Any OpenAI chat API: text in, text out."""

  def __init__(
      self, url: str, model: str, deadline: float, api_key: str | None
  ) -> None:
    self.model = model
    self._http = Caller(url, deadline, api_key)

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
      choice = raw["choices"][0]
      message = _said(choice["message"])
    except (LookupError, TypeError, AttributeError) as error:
      raise _malformed(f"{type(error).__name__}: {error}") from None
    usage = raw.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    return Reply(
        message=message,
        finish_reason="length" if choice.get("finish_reason") == "length" else "stop",
        sampling=sampling,
        usage=_usage(*(n if isinstance(n, int) else 0 for n in counts)),
    )


def _said(message: dict[str, Any]) -> Message:
  """A chat API's message as ours; `CallError` where it is none."""
  content = message.get("content")
  if isinstance(content, list):
    texts = [part.get("text") for part in content if part.get("type") == "text"]
    content = "".join(texts) if all(isinstance(t, str) for t in texts) else texts
  if not (content is None or isinstance(content, str)):
    raise _malformed(f"content {str(content)[:100]} is no text")
  said: Message = {"role": "assistant", "content": content}
  calls = []
  for call in message.get("tool_calls") or []:
    function = call["function"]
    name, arguments = function["name"], function.get("arguments")
    if isinstance(arguments, dict):
      arguments = json_text.dump(arguments)
    if not isinstance(name, str) or not isinstance(arguments, str | None):
      raise _malformed(f"tool call {str(function)[:100]}")
    calls.append({
        "id": f"call{secrets.token_hex(8)}",  # letters and digits survive
        "type": "function",
        "function": {"name": name, "arguments": arguments or "{}"},
    })
  if calls:
    said["tool_calls"] = calls
  return said


def _check_tokens(raw: dict[str, Any], vocab_size: int) -> None:
  """`CallError` unless an engine's answer is ids and a log-prob and version for each."""
  ids = raw.get("ids")
  if not isinstance(ids, list) or not all(
      type(i) is int and 0 <= i < vocab_size for i in ids
  ):
    raise _malformed("ids are no list of tokens of the model's vocabulary")
  for name in ("logprobs", "untempered_logprobs", "policy_versions"):
    column = raw.get(name)
    if not isinstance(column, list) or len(column) != len(ids):
      raise _malformed(f"{name} has not one entry for each of {len(ids)} ids")
    if not all(type(x) in (int, float) and math.isfinite(x) for x in column):
      raise _malformed(f"{name} holds something else than numbers")
  if raw.get("finish_reason") not in ("stop", "length"):
    raise _malformed(f"finish_reason {raw.get('finish_reason')!r}")


def _malformed(what: str) -> CallError:
  return CallError(
      502, "upstream_malformed", f"the upstream's answer is malformed: {what}"
  )


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
  timeout = aiohttp.ClientTimeout(total=30.0, sock_connect=CONNECT_SECONDS)
  headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
  try:
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
      engine = url.removesuffix("/v1")
      async with session.get(f"{engine}/info") as response:
        info = await json_of(response)
      if isinstance(info, dict) and info.get("kind") == "tokens":
        async with session.get(f"{engine}/tokenizer") as response:
          files = await json_of(response)
        return TokenUpstream(engine, info, Tokenizer.from_files(files), deadline)
      base = url if url.endswith("/v1") else f"{url}/v1"
      if model is None:
        async with session.get(f"{base}/models") as response:
          models = await json_of(response)
        if response.status in (401, 403):
          raise UserError(
              f"{base}/models answers {response.status}: set UPSTREAM_API_KEY to a key"
              " that it takes"
          )
        if not models:
          raise UserError(
              f"{url} is neither an engine nor an OpenAI chat API: it offers no"
              f" /info and {base}/models answers {response.status}"
          )
        model = models["data"][0]["id"]
      return ChatUpstream(base, model, deadline, api_key)
  except (
      aiohttp.ClientError, asyncio.TimeoutError,
      LookupError, TypeError, AttributeError, ValueError,
  ) as error:  # fmt: skip
    raise UserError(
        f"can't use the upstream {url}: {type(error).__name__} {error}; start it,"
        " or correct its address"
    ) from None


def _usage(prompt: int, completion: int) -> dict[str, int]:
  return {
      "prompt_tokens": prompt,
      "completion_tokens": completion,
      "total_tokens": prompt + completion,
  }
