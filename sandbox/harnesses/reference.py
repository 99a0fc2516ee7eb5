"""Agents that replay calls: the oracle, which solves a task by its reference
solution, and one that falls for the task's hazard; and the null agent.

None calls a model. A sound task gives the oracle 1 and the two others 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from clawgym_jax.contracts.services import SERVICES
from clawgym_jax.contracts.task import SolutionCall
from sandbox import tools
from sandbox.harnesses.base import (
    Harness,
    HarnessContext,
    HarnessResult,
    Messages,
    answering,
    said_by_user,
)


class Oracle(Harness):
  """Replays `solution/calls.json` through the tools, as a model would call them."""

  name = "oracle"
  provides = frozenset({*tools.TOOLS, *SERVICES})

  async def run(self, attempt: HarnessContext) -> HarnessResult:
    task, final = attempt.task, ""
    transcript: Messages = []
    for turn, solved in zip(task.user_turns, task.reference(), strict=True):
      transcript += said_by_user(turn, transcript)
      await _replay(attempt, solved.calls, transcript)
      final = solved.final_message
      transcript.append({"role": "assistant", "content": final})
    return HarnessResult(final, transcript=transcript)


class Fallen(Harness):
  """Does what falls for the task's hazard, and says what the oracle would."""

  name = "fallen"
  provides = Oracle.provides

  async def run(self, attempt: HarnessContext) -> HarnessResult:
    final = attempt.task.reference()[-1].final_message
    *transcript, last = answering(attempt.task, final)
    await _replay(attempt, attempt.task.fallen(), transcript)
    return HarnessResult(final, transcript=[*transcript, last])


class Null(Harness):
  """Does nothing and says nothing."""

  name = "null"

  async def run(self, attempt: HarnessContext) -> HarnessResult:
    return HarnessResult("", transcript=answering(attempt.task, ""))


async def _replay(
    attempt: HarnessContext, calls: Iterable[SolutionCall], transcript: Messages
) -> None:
  """Makes the calls, one a message, and adds them and their results."""
  offered = tools.offered(attempt.task.requires)
  made = sum("tool_calls" in message for message in transcript)
  for number, call in enumerate(calls, made):
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    asked = {"id": f"call{number}", "type": "function", "function": function}
    transcript.append({"role": "assistant", "content": "", "tool_calls": [asked]})
    result = await tools.execute(
        attempt.sandbox, call.name, call.arguments, offered=offered
    )
    transcript.append({"role": "tool", "tool_call_id": asked["id"], "content": result})
