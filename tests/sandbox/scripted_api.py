"""An OpenAI-compatible server on a free port that answers from a list."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web


def call(name: str, **arguments: Any) -> dict[str, Any]:
  """A tool call as a chat API gives it."""
  function = {"name": name, "arguments": json.dumps(arguments)}
  return {"id": f"id_{name}", "type": "function", "function": function}


def reply(text: str | None = None, *calls: dict[str, Any]) -> dict[str, Any]:
  """An assistant message."""
  message: dict[str, Any] = {"role": "assistant", "content": text}
  if calls:
    message["tool_calls"] = list(calls)
  return message


class Api:
  """`answers` are messages, or (status, headers, body) for a failure.

  The last one is repeated. `requests` holds what was asked.
  """

  def __init__(self, answers: list[Any]):
    self.answers = answers
    self.requests: list[dict[str, Any]] = []
    self.url = ""

  async def handle(self, request: web.Request) -> web.Response:
    self.requests.append(await request.json())
    answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
    if isinstance(answer, tuple):
      status, headers, body = answer
      return web.Response(status=status, headers=headers, text=body)
    if isinstance(answer, float):
      await asyncio.sleep(answer)
      answer = reply("late")
    return web.json_response({"choices": [{"index": 0, "message": answer}]})


@contextlib.asynccontextmanager
async def serve(*answers: Any) -> AsyncIterator[Api]:
  api = Api(list(answers))
  app = web.Application()
  app.router.add_post("/v1/chat/completions", api.handle)
  runner = web.AppRunner(app)
  await runner.setup()
  site = web.TCPSite(runner, "127.0.0.1", 0)
  await site.start()
  api.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
  try:
    yield api
  finally:
    await runner.cleanup()
