"""Who may record what: one session an attempt, one turn at a time.

A session is opened with `register` and ends with its attempt. Its key is its
token; the pool holds the token's hash, so every gateway on that pool knows
the session, also after a restart, and no secret is on the disk.

A call runs to its end even if its client has gone: the step is in the pool
before anybody sees the answer, and the client's retry gets that answer. A
failed call leaves the session as it was.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
import time
from typing import Any

from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.trajectory import Step
from clawgym_jax.pool import AttemptGone, Pool
from clawgym_jax.pool.store import hash_token
from sandbox.gateway.errors import CallError
from sandbox.gateway.messages import Request
from sandbox.gateway.tree import Node, Place, Tree
from sandbox.gateway.upstream import Upstream

PINS = ("temperature", "top_p", "max_tokens", "seed")


class Session:
  """The calls of one attempt."""

  def __init__(
      self, trajectory_id: str, pool: Pool, upstream: Upstream, pins: dict[str, Any]
  ) -> None:
    self.trajectory_id = trajectory_id
    self._pool = pool
    self._upstream = upstream
    self._pins = pins
    self._tree = Tree(pool.steps(trajectory_id))
    self._running: tuple[tuple[str, str], asyncio.Task[Node]] | None = None

  async def answer(self, request: Request, *, retry: bool) -> Node:
    """The step that answers `request`, recorded.

    A retry of an answered request gets the same step; the same request while
    it runs waits for it; another one meanwhile is a 409.
    """
    key = (request.tools_digest, "".join(request.digests))
    if self._running is not None:
      if self._running[0] != key:
        raise CallError(
            409,
            "session_busy",
            f"session {self.trajectory_id} is answering another request: one turn"
            " at a time",
            1.0,
        )
    else:
      known = self._tree.answered(request) if retry else None
      if known is not None:
        return known
      task = asyncio.ensure_future(self._call(request))
      self._running = (key, task)
      task.add_done_callback(self._done)
    return await asyncio.shield(self._running[1])

  def _done(self, task: asyncio.Task[Node]) -> None:
    self._running = None
    if not task.cancelled():
      task.exception()  # seen, also where every client has gone

  async def _call(self, request: Request) -> Node:
    place = self._tree.place(request)
    started = time.time()
    number = len(self._tree.nodes)
    sampling = self._sampling(request, number)
    reply = await self._upstream.ask(request, place, dict(sampling))
    if reply.fork_cause:
      place = Place(None, request.messages, reply.fork_cause)
    calls = reply.message.get("tool_calls")
    overridden = {
        name: value
        for name, value in request.asked.items()
        if reply.sampling.get(name, value) != value
    }
    try:
      step = Step(
          step_id=f"s{number}",
          parent_id=place.parent.step.step_id if place.parent else None,
          fork_cause=place.fork_cause,
          messages=place.messages,
          tools=None if place.parent else request.tools,
          response=reply.message,
          finish_reason="tool_calls"
          if calls and reply.finish_reason == "stop"
          else reply.finish_reason,
          prompt_ids=reply.prompt_ids,
          **reply.columns,
          sampling={
              **reply.sampling,
              **({"overridden": overridden} if overridden else {}),
          },
          observation_hash=request.digests[-1],
          started=started,
          finished=time.time(),
      )
      await asyncio.to_thread(self._pool.append_step, self.trajectory_id, step)
    except AttemptGone as error:
      raise _unknown(self.trajectory_id, str(error)) from None
    except RecordError as error:
      raise CallError(502, "upstream_malformed", str(error)) from None
    except UserError as error:
      raise CallError(503, "pool_unavailable", str(error), 5.0) from None
    return self._tree.add(step, reply.usage)

  def _sampling(self, request: Request, number: int) -> dict[str, Any]:
    """Pinned parameters win; a pinned seed differs from call to call, repeatably."""
    sampling = {**request.asked, **self._pins}
    if "seed" in self._pins:
      text = f"{self._pins['seed']}:{self.trajectory_id}:{number}"
      digest = hashlib.sha256(text.encode()).digest()
      sampling["seed"] = int.from_bytes(digest[:7], "big")
    return sampling


class Sessions:
  """The sessions of one gateway."""

  def __init__(self, pool: Pool, upstream: Upstream, pins: dict[str, Any]) -> None:
    unknown = sorted(set(pins) - set(PINS))
    if unknown:
      raise UserError(
          f"can't pin {', '.join(unknown)}: known are {', '.join(PINS)}"
      )
    self._pool = pool
    self._upstream = upstream
    self._pins = pins
    self._open: dict[str, Session] = {}
    self._lock = threading.Lock()

  def register(self, trajectory_id: str, token: str) -> None:
    """Opens the session of a running attempt; `AttemptGone` if it is not running."""
    self._pool.register(trajectory_id, token)
    with self._lock:
      ended = [name for name in self._open if self._pool.registration(name) is None]
      for name in ended:
        del self._open[name]

  def find(self, trajectory_id: str, token: str) -> Session:
    """The session, or a `CallError`: 404 for an unknown one, 401 for a wrong key."""
    expected = self._pool.registration(trajectory_id)
    if expected is None:
      raise _unknown(trajectory_id, "it was never registered, or its attempt ended")
    if not hmac.compare_digest(expected, hash_token(token)):
      raise CallError(
          401,
          "invalid_api_key",
          f"the API key is not the token of session {trajectory_id}",
      )
    with self._lock:
      session = self._open.get(trajectory_id)
      if session is None:
        session = Session(trajectory_id, self._pool, self._upstream, self._pins)
        self._open[trajectory_id] = session
      return session


def _unknown(trajectory_id: str, why: str) -> CallError:
  return CallError(
      404,
      "unknown_session",
      f"unknown session {trajectory_id!r}: {why}; the base URL must be the one that"
      " the rollout gave, http://HOST:PORT/s/TRAJECTORY/v1",
  )
