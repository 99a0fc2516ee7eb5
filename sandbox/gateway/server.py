"""The gateway on HTTP: OpenAI chat completions, one base URL a session.

Requests with `stream` get server-sent events made from the finished answer,
so what is streamed is what is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from clawgym_jax import web
from clawgym_jax.contracts import json_text
from clawgym_jax.pool import Pool
from sandbox.gateway import messages
from sandbox.gateway.errors import CallError, bad_request
from sandbox.gateway.sessions import Sessions
from sandbox.gateway.tree import Node
from sandbox.gateway.upstream import Upstream, connect


def app(pool: Pool, upstream: Upstream, pins: dict[str, Any]) -> Starlette:
  """The ASGI application. `app.state.sessions` opens sessions.

  `pins` are the sampling parameters that win over the agent's: temperature,
  top_p, max_tokens, seed.
  """
  sessions = Sessions(pool, upstream, pins)

  async def chat(http: HttpRequest) -> Response:
    session = sessions.find(http.path_params["session"], _key(http))
    try:
      body = json_text.parse(await http.body())
    except ValueError:
      raise bad_request("the body is not JSON") from None
    request = messages.parse(body)
    node = await session.answer(request, retry=_is_retry(http))
    completion = _completion(session.trajectory_id, upstream.model, node)
    if not request.stream:
      return Response(json_text.dump(completion), media_type="application/json")
    return StreamingResponse(
        events(completion, request.stream_usage), media_type="text/event-stream"
    )

  async def models(http: HttpRequest) -> Response:
    sessions.find(http.path_params["session"], _key(http))
    entry = {"id": upstream.model, "object": "model", "owned_by": "clawgym"}
    return JSONResponse({"object": "list", "data": [entry]})

  async def elsewhere(http: HttpRequest) -> Response:
    raise CallError(
        404,
        "unknown_session",
        f"unknown session: nothing is at {http.url.path}; the base URL must be"
        " http://HOST:PORT/s/TRAJECTORY/v1, and /chat/completions is what it offers",
    )

  @contextlib.asynccontextmanager
  async def lifespan(_: Starlette) -> AsyncIterator[None]:
    yield
    await upstream.close()

  application = Starlette(
      routes=[
          Route("/s/{session}/v1/chat/completions", chat, methods=["POST"]),
          Route("/s/{session}/v1/models", models),
          Route("/{path:path}", elsewhere, methods=["GET", "POST"]),
      ],
      exception_handlers={CallError: on_call_error},
      lifespan=lifespan,
  )
  application.state.sessions = sessions
  return application


class Gateway:
  """A running gateway, as a rollout sees it."""

  def __init__(self, url: str, sessions: Sessions) -> None:
    self.url = url
    self._sessions = sessions

  def register(self, trajectory_id: str) -> tuple[str, str]:
    """Opens a session; returns the base URL and the API key for its harness."""
    token = secrets.token_urlsafe(24)
    self._sessions.register(trajectory_id, token)
    return f"{self.url}/s/{quote(trajectory_id, safe='')}/v1", token


@contextlib.asynccontextmanager
async def start(
    pool: Pool,
    upstream: str | Upstream,
    pins: dict[str, Any] | None = None,
    *,
    deadline: float = 600.0,
    api_key: str | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[Gateway]:
  """Runs a gateway in a thread of this process while the context is open.

  `upstream` is a URL, or what `connect` found there. `host` is the address of
  this machine by which harnesses reach it.
  """
  if isinstance(upstream, str):
    upstream = await connect(upstream, deadline=deadline, api_key=api_key)
  application = app(pool, upstream, pins or {})
  url, stop = await asyncio.to_thread(web.serve, application, host=host)
  try:
    yield Gateway(url, application.state.sessions)
  finally:
    await asyncio.to_thread(stop)


async def on_call_error(_: HttpRequest, error: Exception) -> Response:
  """A `CallError` as OpenAI clients read it."""
  assert isinstance(error, CallError)
  if error.status == 404:
    print(f"gateway: {error}", file=sys.stderr)
  headers = {}
  if error.retry_after is not None:
    headers["Retry-After"] = f"{error.retry_after:g}"
  return JSONResponse(error.body(), error.status, headers)


def _key(http: HttpRequest) -> str:
  return http.headers.get("authorization", "").removeprefix("Bearer ").strip()


def _is_retry(http: HttpRequest) -> bool:
  count = http.headers.get("x-stainless-retry-count", "0")
  return count.isdigit() and int(count) > 0


def _completion(session: str, model: str, node: Node) -> dict[str, Any]:
  """The OpenAI object; it depends on the step alone, so a retry gets the same."""
  step = node.step
  return {
      "id": f"chatcmpl-{session}-{step.step_id}",
      "object": "chat.completion",
      "created": int(step.finished),
      "model": model,
      "choices": [
          {
              "index": 0,
              "message": {"content": None, **step.response},
              "finish_reason": step.finish_reason,
              "logprobs": None,
          }
      ],
      "usage": node.usage,
  }


def events(completion: dict[str, Any], with_usage: bool) -> Iterator[str]:
  """The completion as server-sent events: role, text, calls, finish, usage."""
  (choice,) = completion["choices"]
  message = choice["message"]
  deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
  for name in ("reasoning_content", "content", "parse_error"):
    if message.get(name):
      deltas.append({name: message[name]})
  if message.get("tool_calls"):
    calls = [{"index": i, **call} for i, call in enumerate(message["tool_calls"])]
    deltas.append({"tool_calls": calls})
  head = {k: completion[k] for k in ("id", "created", "model")}
  head["object"] = "chat.completion.chunk"
  for delta in deltas:
    yield _event({**head, "choices": [_chunk(delta, None)]})
  yield _event({**head, "choices": [_chunk({}, choice["finish_reason"])]})
  if with_usage:
    yield _event({**head, "choices": [], "usage": completion["usage"]})
  yield "data: [DONE]\n\n"


def _chunk(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
  return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}


def _event(value: dict[str, Any]) -> str:
  return f"data: {json_text.dump(value)}\n\n"
