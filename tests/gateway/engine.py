"""An engine for tests: says what it is told, in token ids, and remembers prompts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Iterator

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from clawgym_jax.chat import vocabulary
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.pool import Attempt, Pool
from clawgym_jax.web import serve

_CORPUS = [
    "system user assistant tool read write edit exec path content command"
    ' <tool_call>{"name": "read", "arguments": {"path": "notes.txt"}}</tool_call>'
    " the quick brown fox jumps over the lazy dog 0 1 2 3 4 5 6 7 8 9"
] * 20


def tokenizer() -> Tokenizer:
  return vocabulary.train(_CORPUS, 400)


class Engine:
  """Answers with `script` in turn: text, ids, or a (status, body, headers)."""

  def __init__(self, tok: Tokenizer, *, max_len: int = 4096) -> None:
    self.tokenizer = tok
    self.script: list = []
    self.prompts: list[list[int]] = []
    self.bodies: list[dict] = []
    self.delay = 0.0
    self.max_len = max_len
    self.weights = "0123456789abcdef"
    self.app = Starlette(
        routes=[
            Route("/info", self._info),
            Route("/tokenizer", self._files),
            Route("/generate", self._generate, methods=["POST"]),
        ]
    )

  async def _info(self, _):
    return JSONResponse({
        "kind": "tokens",
        "model": "fake",
        "max_len": self.max_len,
        "policy_version": 3,
        "weights": self.weights,
        "compute_dtype": "float32",
    })

  async def _files(self, _):
    return JSONResponse(self.tokenizer.to_files())

  async def _generate(self, http):
    body = json.loads(await http.body())
    self.bodies.append(body)
    said = self.script.pop(0) if self.script else "done"
    await asyncio.sleep(self.delay)
    if isinstance(said, tuple):
      status, content, headers = said
      return JSONResponse(content, status, headers)
    self.prompts.append(body["prompt_ids"])
    ids = said
    if isinstance(said, str):
      ids = [*self.tokenizer.encode(said), self.tokenizer.eos_id]
    stopped = ids[-1] == self.tokenizer.eos_id
    return JSONResponse({
        "ids": ids,
        "logprobs": [-random.random() for _ in ids],
        "untempered_logprobs": [-random.random() for _ in ids],
        "policy_versions": [3] * len(ids),
        "finish_reason": "stop" if stopped else "length",
    })


@contextlib.contextmanager
def serving(app: Starlette) -> Iterator[str]:
  """The URL of `app` while it runs."""
  url, stop = serve(app)
  try:
    yield url
  finally:
    stop()


def claimed(pool: Pool, name: str = "g") -> Attempt:
  """A running attempt of a new group."""
  pool.add_group(name, "train", "t", 1)
  return pool.claim("train", "w", 600)


def call(name: str, **arguments) -> str:
  """A tool call as a model says it."""
  return (
      f'<tool_call>{{"name": "{name}", "arguments": {json.dumps(arguments)}}}'
      "</tool_call>"
  )


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} it",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in keys},
            },
        },
    }
    for name, keys in (("read", ["path"]), ("exec", ["command"]))
]
