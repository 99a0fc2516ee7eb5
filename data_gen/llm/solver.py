"""The agent that solves a task for the first time: the Claw loop over a real sandbox.

Its model is the endpoint, reached through a server of this process, so that each
of its calls is kept and counted as any other. What it did in the sandbox becomes the
reference solution; that those calls are right, and say nothing that was not shown, is
for the audit to see. Each attempt is kept whole by what the agent was given.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clawgym_jax import web
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import SolutionCall, Task
from data_gen.llm import prompts
from data_gen.llm.cache import Cache
from data_gen.llm.endpoint import Lost
from data_gen.llm.model import Model
from data_gen.llm.proposal import SOLVER_LIMITS, Attempt
from data_gen.llm.tally import Tally
from sandbox import services, tools
from sandbox.backends import SandboxError, SandboxLost, open_sandbox
from sandbox.backends.base import Files, gather, unpack
from sandbox.harnesses import HarnessContext, HarnessResult, load

_STAGE = "solve"
_MOST_WORK = 8_000  # characters that are kept of a file it made
_MOST_FILES = 40
_TURN_SECONDS = 3600.0  # for one model call: the endpoint has bounds of its own


class Solver:
  """Use it as `async with`, in the loop that the model's endpoint lives in."""

  def __init__(self, model: Model, cache: Cache, backend: str) -> None:
    self._model, self._cache, self._backend = model, cache, backend
    self._sessions: dict[str, _Session] = {}
    self._loop: asyncio.AbstractEventLoop | None = None
    self._url, self._stop = "", lambda: None

  async def __aenter__(self) -> Solver:
    self._loop = asyncio.get_running_loop()
    route = Route("/{session}/v1/chat/completions", self._chat, methods=["POST"])
    self._url, self._stop = await asyncio.to_thread(
        web.serve, Starlette(routes=[route])
    )
    return self

  async def __aexit__(self, *exception: object) -> None:
    await asyncio.to_thread(self._stop)

  async def attempt(
      self, task: Task, tally: Tally, *, note: str = "", again: int = 0
  ) -> Attempt:
    """What the agent does with `task`, another time for each `again`; `note` is said to
    it beside the task. `Lost` where model or sandbox were lost on the way."""
    asked = {
        "what": "attempt",
        "model": self._model.name,
        "prompts": prompts.VERSION,
        "given": _given(task),
        "note": note,
        "again": again,
    }
    kept = self._cache.get(asked)
    session = _Session(self._model, tally, note, again)
    if kept is not None:
      session.count(kept["replies"])
      return Attempt.of_record(kept["attempt"])
    made = await self._made(task, session)
    self._cache.put(asked, {"attempt": made.record(), "replies": session.replies})
    return made

  async def _made(self, task: Task, session: _Session) -> Attempt:
    name = secrets.token_hex(16)
    self._sessions[name] = session
    try:
      async with open_sandbox(
          self._backend, run_id="llm", now=task.now, folders=services.folders(task)
      ) as sandbox:
        await sandbox.start(task.workspace)
        await services.stage(task, sandbox)
        result = await load("claw").run(
            HarnessContext(
                task,
                sandbox,
                base_url=f"{self._url}/{name}/v1",
                model=self._model.name,
                turns=SOLVER_LIMITS.turns,
                seconds=SOLVER_LIMITS.seconds,
                turn_seconds=_TURN_SECONDS,
            )
        )
        if session.error is not None:
          raise session.error
        if result.infra:
          raise Lost("solver", result.cause or result.stop)
        await sandbox.quiet()
        after = unpack(await sandbox.snapshot())
    except (SandboxLost, SandboxError, OSError) as error:
      raise Lost("sandbox", f"{type(error).__name__}: {error}") from error
    finally:
      del self._sessions[name]
    return _attempt(task, result, session, after)

  async def _chat(self, http: Request) -> Response:
    """In the server's thread; the answer is made in the loop of the endpoint."""
    session = self._sessions.get(http.path_params["session"])
    if session is None:
      return JSONResponse({"error": {"message": "no such session"}}, 404)
    body = json_text.parse(await http.body())
    answering = asyncio.run_coroutine_threadsafe(session.answer(body), self._loop)
    status, said = await asyncio.wrap_future(answering)
    return Response(json_text.dump(said), status, media_type="application/json")


class _Session:
  """The model calls of one attempt."""

  def __init__(self, model: Model, tally: Tally, note: str, again: int) -> None:
    self._model, self._tally = model, tally
    self._note, self._again = note, again
    self.replies: list[tuple[int, int]] = []
    self.cut = False
    self.error: Lost | UserError | None = None

  async def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Status and JSON for the harness."""
    first, *rest = body["messages"]
    told = "\n\n".join(
        part for part in (first["content"], prompts.solver(), self._note) if part
    )
    try:
      answer = await self._model.reply(
          _STAGE,
          [{**first, "content": told}, *rest],
          self._tally,
          tools=body["tools"],
          again=self._again,
      )
    except Lost as error:
      if error.status == 400 and self.replies:  # only the conversation has grown
        return 400, {"error": {"message": f"context_length_exceeded: {error}"}}
      self.error = error
      return 500, {"error": {"message": str(error)}}
    except UserError as error:
      self.error = error
      return 500, {"error": {"message": str(error)}}
    self.replies.append((answer.prompt_tokens, answer.completion_tokens))
    self.cut |= answer.finish_reason == "length"
    choice = {"index": 0, "message": answer.message}
    return 200, {"choices": [{**choice, "finish_reason": answer.finish_reason}]}

  def count(self, replies: Iterable[tuple[int, int]]) -> None:
    """Counts those of an attempt that was kept."""
    for prompt_tokens, completion_tokens in replies:
      self._tally.reply(_STAGE, prompt_tokens, completion_tokens)


def _given(task: Task) -> dict[str, Any]:
  """All that the agent sees of the task."""
  seeds = gather(task.services) if task.services.is_dir() else {}
  return {
      "instruction": task.instruction,
      "now": task.now,
      "requires": list(task.requires),
      "files": {
          name: data.decode("latin-1")
          for name, data in {
              **{f"workspace/{p}": d for p, d in gather(task.workspace).items()},
              **{f"services/{p}": d for p, d in seeds.items()},
          }.items()
      },
  }


def _attempt(
    task: Task, result: HarnessResult, session: _Session, after: Files
) -> Attempt:
  calls = tuple(_calls(result.transcript, tools.offered(task.requires)))
  cause = ""
  if session.cut:
    cause = "a reply was cut before its end"
  elif result.stop != "done":
    cause = result.cause or result.stop
  elif not calls:
    cause = "it made no call"
  before = gather(task.workspace)
  paths = sorted(before.keys() | after.keys())
  changed = [path for path in paths if before.get(path) != after.get(path)]
  work = {
      path: _cut(after[path]) if path in after else None
      for path in changed[:_MOST_FILES]
  }
  return Attempt(calls, result.final_message, cause, work)


def _calls(
    transcript: list[dict[str, Any]], offered: Iterable[str]
) -> Iterable[SolutionCall]:
  """The calls that a tool was there for; the others did nothing."""
  known = frozenset(offered)
  for message in transcript:
    for call in message.get("tool_calls") or ():
      function = call.get("function") or {}
      arguments = function.get("arguments")
      if isinstance(arguments, str):
        try:
          arguments = json_text.parse(arguments or "{}")
        except ValueError:
          continue
      sound = isinstance(arguments, dict) and json_text.recordable(arguments)
      if function.get("name") in known and sound:
        yield SolutionCall(function["name"], arguments)


def _cut(data: bytes) -> str:
  text = data.decode(errors="replace")
  left = len(text) - _MOST_WORK
  return text if left <= 0 else f"{text[:_MOST_WORK]}\n[… {left} characters]"
