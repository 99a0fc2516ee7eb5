"""The built-in agent: a chat loop over the Claw tools, one call at a time.

A task is offered read, write, edit and exec, and the tools of what it requires.
It talks to any OpenAI-compatible API; tool calls of one message run in order. A
message without one ends the agent's turn: then the user's next is said.
An end is the policy's own (done, turn limit, time in tools, context full) or
it is infra: a refusal, a server that stays unreachable, a reply that is none.
Nothing is retried but what a server says may pass (429, 503, no connection),
boundedly.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.services import SERVICES
from clawgym_jax.contracts.task import Task
from sandbox import services, tools
from sandbox.backends import SandboxLost
from sandbox.harnesses.base import Harness, HarnessContext, HarnessResult, Messages

RETRIES = 5
RETRY_SECONDS = 30.0  # the longest wait before one

_SYSTEM = (
    "You are an agent working in /workspace. Use the tools to do what the user"
    " asks, then answer in one short sentence."
)


def _opening(task: Task, text: str) -> Messages:
  """A conversation that opens with `text`, under the task's date, and what programs
  serve it; the system prompt is one for all tasks, so that engines and trainers
  share it as a prefix."""
  guide = services.guide(task)
  said = f"[{task.now[:10]}] {text}" + (guide and f"\n\n{guide}")
  return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": said}]


class _Infra(Exception):
  """The model could not be asked, for no fault of the policy."""


class _ContextFull(Exception):
  """The conversation no longer fits the model."""


class Claw(Harness):
  """See the module's docstring."""

  name = "claw"
  needs_model = True
  provides = frozenset({*tools.TOOLS, *SERVICES})

  async def run(self, attempt: HarnessContext) -> HarnessResult:
    ended: Messages = []  # of the conversations before this one
    messages: Messages = []
    calls, spent, said = 0, 0.0, ""

    def end(stop: str, cause: str | None = None, infra: bool = False) -> HarnessResult:
      return HarnessResult(said, stop, cause, infra, [*ended, *messages], calls)

    async with aiohttp.ClientSession() as http:
      for turn in attempt.task.user_turns:
        if calls >= attempt.turns:
          return end("turn_limit", "turn_limit")
        if turn.fresh:
          ended += messages
          messages = _opening(attempt.task, turn.text)
        else:
          messages.append({"role": "user", "content": turn.text})
        working = True
        while working:
          try:
            reply = await _ask(http, attempt, messages)
          except _ContextFull as error:
            return end("context_limit", f"context_limit: {error}")
          except _Infra as error:
            return end("error", f"model_call: {error}", infra=True)
          calls += 1
          messages.append(reply)
          said = _text(reply)
          working = bool(reply.get("tool_calls") or reply.get("parse_error"))
          if working and not reply.get("tool_calls"):
            # A call that could not be read: the policy is told why, and goes on.
            messages.append({"role": "user", "content": str(reply["parse_error"])})
          for call in reply.get("tool_calls") or ():
            left = attempt.seconds - spent
            if left <= 0:
              return end("time_limit", "time_limit")
            started = time.monotonic()
            try:
              result = await _execute(attempt, call, left)
            except SandboxLost as error:
              return end("error", f"sandbox_lost: {error}", infra=True)
            spent += time.monotonic() - started
            messages.append(result)
          if working and calls >= attempt.turns:
            return end("turn_limit", "turn_limit")
    return end("done")


async def _execute(
    attempt: HarnessContext, call: dict[str, Any], seconds: float
) -> dict[str, Any]:
  function = call.get("function") or {}
  text = await tools.execute(
      attempt.sandbox,
      str(function.get("name")),
      function.get("arguments") or "{}",
      seconds=min(seconds, tools.EXEC_SECONDS),
      offered=tools.offered(attempt.task.requires),
  )
  return {"role": "tool", "tool_call_id": call.get("id", ""), "content": text}


async def _ask(
    http: aiohttp.ClientSession,
    attempt: HarnessContext,
    messages: Messages,
) -> dict[str, Any]:
  """The assistant message that answers `messages`."""
  body = {
      "model": attempt.model,
      "messages": messages,
      "tools": tools.compact_schemas(tools.offered(attempt.task.requires)),
  }
  wait = 0.0
  cause = ""
  for number in range(RETRIES + 1):
    if number:
      await asyncio.sleep(wait)
    left = attempt.deadline - time.monotonic()
    if left <= 0:
      raise _Infra(f"no reply before the attempt's deadline{cause and f'; {cause}'}")
    try:
      async with http.post(
          f"{attempt.base_url.rstrip('/')}/chat/completions",
          data=json.dumps(body),
          headers={
              "Authorization": f"Bearer {attempt.api_key}",
              "Content-Type": "application/json",
              "x-stainless-retry-count": str(number),
          },
          timeout=aiohttp.ClientTimeout(total=min(attempt.turn_seconds, left)),
      ) as response:
        text = await response.text(errors="replace")
        status, retry_after = response.status, response.headers.get("Retry-After")
    except TimeoutError:
      raise _Infra("no reply in time") from None
    except aiohttp.ClientError as error:
      cause, wait = f"{type(error).__name__}: {error}", _backoff(number, None)
      continue
    if status == 200:
      return _message(text)
    cause = f"HTTP {status}: {text[:300]}"
    if status == 400 and "context_length_exceeded" in text:
      raise _ContextFull(text[:300])
    if status not in (429, 503):
      raise _Infra(cause)
    wait = _backoff(number, retry_after)
  raise _Infra(f"{cause} (tried {RETRIES + 1} times)")


def _backoff(number: int, retry_after: str | None) -> float:
  """Seconds to wait: what the server asks, else doubling from 0.5."""
  try:
    asked = float(retry_after) if retry_after else 0.5 * 2**number
  except ValueError:
    asked = 0.5 * 2**number
  return min(RETRY_SECONDS, max(0.05, asked))


def _message(text: str) -> dict[str, Any]:
  """The first choice's message, as it was sent, so that it goes back unchanged."""
  try:
    message = json_text.parse(text)["choices"][0]["message"]
    calls = message.get("tool_calls") or []
    sound = isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
  except (ValueError, LookupError, TypeError, AttributeError):
    sound = False
  if not sound:
    raise _Infra(f"a reply that is no chat completion: {text[:300]}")
  return {"role": "assistant", **message}


def _text(message: dict[str, Any]) -> str:
  """The text of a message, whose content may be a string, parts or null."""
  content = message.get("content")
  if isinstance(content, list):
    return "".join(p.get("text") or "" for p in content if isinstance(p, dict))
  return content if isinstance(content, str) else ""
