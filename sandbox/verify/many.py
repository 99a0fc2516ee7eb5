"""Judges many states of one task; those of trusted checks share a sandbox.

A trusted check is imported once and judges each state in a fork; between
states everything of the last one is wiped. Such a fork only reads what the
agent left. Whatever else happens in it (it wants to start a process, it
crashes, raises, hangs or is killed, it touches the checks, the sandbox is
lost) gives no result here: that state is judged by `verify`, in a fresh
sandbox, which alone says what it means. So the outcomes are those of `verify`.

Foreign checks, and those that a model wrote, never share: they may run the
agent's code, and then one state could wait there for the next.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Self

from clawgym_jax.contracts.task import Task, intact
from clawgym_jax.contracts.trajectory import Outcome, scored
from sandbox.backends import Bounds, Sandbox, SandboxError, SandboxLost
from sandbox.backends.base import pack
from sandbox.verify.checks import (
    CHECK_SECONDS,
    CheckError,
    State,
    hand_over,
    open_verifier,
    said,
    sound,
    stage,
    weighted,
)
from sandbox.verify.imported import verify

_OUR_GENERATOR = "procedural-"
_MOST_STATES = 64  # of one sandbox
_MOST_SECONDS = 300.0  # no new state is begun in a sandbox older than this
_ANSWER_SECONDS = 5.0  # beyond the checks' own, to wipe and to answer
_STAY = "exec python3 -I /verify/resident.py {seconds}"
_ASK = (
    "echo >/verify/ask && IFS= read -r line </verify/answer && printf '%s\\n' \"$line\""
)


def trusted(task: Task) -> bool:
  """Whether our own generator made the task, and nobody changed it since.

  A task that lies about its origin gains nothing: it shares a sandbox with
  states of its own only, and of those its checks decide anyway.
  """
  ours = str(task.provenance.get("generator", "")).startswith(_OUR_GENERATOR)
  return ours and intact(task)


async def verify_many(
    task: Task,
    states: Sequence[State],
    *,
    backend: str = "bubblewrap",
    run_id: str = "verify",
    seconds: float = CHECK_SECONDS,
    agent: Bounds = Bounds(),
) -> list[Outcome]:
  """`verify` of each state, in order; cheaper where the checks are trusted."""
  async with Verifier(
      task, backend=backend, run_id=run_id, seconds=seconds, agent=agent
  ) as verifier:
    return [await verifier.judge(state) for state in states]


class Verifier:
  """Judges states of one task as they come; use it as `async with`.

  One state at a time. It holds a sandbox, if any, until it is closed.
  """

  def __init__(
      self,
      task: Task,
      *,
      backend: str = "bubblewrap",
      run_id: str = "verify",
      seconds: float = CHECK_SECONDS,
      agent: Bounds = Bounds(),
  ):
    self._task = task
    self._settings = dict(
        backend=backend, run_id=run_id, seconds=seconds, agent=agent
    )
    self._seconds = seconds
    self._shares = trusted(task)
    self._sandbox: Sandbox | None = None
    self._judged = 0  # by this sandbox
    self._until = 0.0

  async def __aenter__(self) -> Self:
    return self

  async def __aexit__(self, *exception: object) -> None:
    await self.close()

  async def judge(self, state: State) -> Outcome:
    """The outcome that `verify` gives."""
    outcome = await self._judge_shared(state) if self._shares else None
    if outcome is not None:
      return outcome
    return await verify(
        self._task,
        state.snapshot,
        state.final_message,
        state.transcript,
        reports=state.reports,
        **self._settings,
    )

  async def _judge_shared(self, state: State) -> Outcome | None:
    """A sound result from the shared sandbox, or None."""
    keep = False
    try:
      sandbox = await self._opened()
      nonce = await hand_over(sandbox, state)
      result = await sandbox.exec(_ASK, self._seconds + _ANSWER_SECONDS)
      answer = said(result.output, nonce, result.exit_code)
      keep = not answer["last"]
      if "alone" in answer["result"]:
        return None
      checks = sound(answer["result"])
      return scored(weighted(self._task, checks), checks)
    except (CheckError, SandboxLost, SandboxError):
      return None
    finally:
      self._judged += 1
      if not keep:
        await self.close()

  async def _opened(self) -> Sandbox:
    """The shared sandbox, a new one where the last is gone or has done enough."""
    if self._judged >= _MOST_STATES or time.monotonic() > self._until:
      await self.close()
    if self._sandbox is None:
      self._sandbox = open_verifier(
          self._settings["backend"],
          self._settings["run_id"],
          self._task.now,
          ("/checks",),
          _MOST_SECONDS + 2 * self._seconds,
          self._settings["agent"],
      )
      self._judged, self._until = 0, time.monotonic() + _MOST_SECONDS
      await self._sandbox.start()
      nonce = await stage(self._task, self._sandbox, State(pack({})))
      result = await self._sandbox.exec(
          _STAY.format(seconds=self._seconds), self._seconds
      )
      if not said(result.output, nonce, result.exit_code).get("ready"):
        self._shares = False  # they fail before they see a state
        raise CheckError("the checks can't be imported")
    return self._sandbox

  async def close(self) -> None:
    """Ends its sandbox, if any; the next state gets another."""
    if self._sandbox is not None:
      sandbox, self._sandbox = self._sandbox, None
      await sandbox.stop()
