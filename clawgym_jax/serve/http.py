"""The engine over HTTP: ids in, ids and log-probs out.

A request that can never succeed is answered 400, one that may succeed later
503 with Retry-After, a dead engine 500; each with {"error": cause}. A client
that hangs up gives its slot back.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clawgym_jax.serve.engine import Busy, Engine, EngineError
from clawgym_jax.serve.requests import Refused, Sampling

_MAX_BODY = 64 << 20  # bytes; some millions of token ids
_SAMPLING = ("max_tokens", "temperature", "top_p", "seed", "stop_ids")


def app(engine: Engine) -> Starlette:
  """GET /info, /tokenizer, /stats and POST /generate over `engine`."""

  async def info(_: Request) -> Response:
    return JSONResponse({
        "kind": "tokens",
        "model": engine.name,
        "max_len": engine.max_len,
        "policy_version": engine.policy_version,
        "weights": engine.weights,
        "compute_dtype": engine.compute_dtype.name,
    })

  async def tokenizer(_: Request) -> Response:
    return JSONResponse(engine.tokenizer.to_files())

  async def stats(_: Request) -> Response:
    return JSONResponse(engine.report())

  async def generate(request: Request) -> Response:
    try:
      prompt_ids, sampling = _parse(await _body(request))
      future = engine.generate(prompt_ids, sampling)
    except Refused as error:
      return _error(400, error)
    except Busy as error:
      return _error(503, error)
    except EngineError as error:
      return _error(500, error)
    return await _answer(request, asyncio.wrap_future(future))

  return Starlette(
      routes=[
          Route("/info", info),
          Route("/tokenizer", tokenizer),
          Route("/stats", stats),
          Route("/generate", generate, methods=["POST"]),
      ]
  )


async def _answer(request: Request, future: asyncio.Future) -> Response:
  """The completion, or nothing of interest once the client has hung up."""
  gone = asyncio.create_task(_hung_up(request))
  try:
    await asyncio.wait({future, gone}, return_when=asyncio.FIRST_COMPLETED)
    if not future.done():
      return Response(status_code=499)
    completion = future.result()
  except EngineError as error:
    return _error(500, error)
  finally:
    gone.cancel()
    future.cancel()  # nothing where it is done; else the slot becomes free
  return JSONResponse({
      "ids": completion.ids,
      "logprobs": completion.logprobs,
      "untempered_logprobs": completion.untempered_logprobs,
      "policy_versions": completion.policy_versions,
      "finish_reason": completion.finish_reason,
      "reused_tokens": completion.reused_tokens,
  })


async def _hung_up(request: Request) -> None:
  while (await request.receive())["type"] != "http.disconnect":
    pass


async def _body(request: Request) -> Any:
  length = request.headers.get("content-length", "0")
  if not length.isdigit() or int(length) > _MAX_BODY:
    raise Refused(f"the body is larger than {_MAX_BODY} bytes")
  try:
    return await request.json()
  except ValueError as error:
    raise Refused(f"the body is not JSON: {error}") from error


def _parse(body: Any) -> tuple[list[int], Sampling]:
  if not isinstance(body, dict) or not isinstance(body.get("prompt_ids"), list):
    raise Refused("the body must be an object with a list prompt_ids")
  unknown = body.keys() - {"prompt_ids", *_SAMPLING}
  if unknown:
    raise Refused(f"unknown keys {sorted(unknown)}; known: prompt_ids, {_SAMPLING}")
  given = {key: body[key] for key in _SAMPLING if body.get(key) is not None}
  stop_ids = given.pop("stop_ids", [])
  if not isinstance(stop_ids, list):
    raise Refused(f"stop_ids is {stop_ids!r}; it must be a list of token ids")
  return body["prompt_ids"], Sampling(**given, stop_ids=tuple(stop_ids))


def _error(status: int, error: Exception) -> Response:
  headers = {"Retry-After": "1"} if status == 503 else None
  return JSONResponse({"error": str(error)}, status, headers)
