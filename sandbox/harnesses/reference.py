"""The oracle, which solves a task by its reference solution, and the null agent.

Neither calls a model. A sound task gives the oracle 1 and the null agent 0.
"""

from __future__ import annotations

import json

from clawgym_jax.contracts.services import SERVICES
from sandbox import tools
from sandbox.harnesses.base import Harness, HarnessContext, HarnessResult


class Oracle(Harness):
  """Replays `solution/calls.json` through the tools, as a model would call them."""

  name = "oracle"
  provides = frozenset({*tools.TOOLS, *SERVICES})

  async def run(self, attempt: HarnessContext) -> HarnessResult:
    task = attempt.task
    transcript = [{"role": "user", "content": task.instruction}]
    for index, call in enumerate(task.solution()):
      made = {
          "id": f"call{index}",
          "type": "function",
          "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
      }
      transcript.append({"role": "assistant", "content": "", "tool_calls": [made]})
      result = await tools.execute(
          attempt.sandbox,
          call.name,
          call.arguments,
          offered=tools.offered(task.requires),
      )
      transcript.append(
          {"role": "tool", "tool_call_id": made["id"], "content": result}
      )
    final = task.final_message()
    transcript.append({"role": "assistant", "content": final})
    return HarnessResult(final, transcript=transcript)


class Null(Harness):
  """Does nothing and says nothing."""

  name = "null"

  async def run(self, attempt: HarnessContext) -> HarnessResult:
    transcript = [
        {"role": "user", "content": attempt.task.instruction},
        {"role": "assistant", "content": ""},
    ]
    return HarnessResult("", transcript=transcript)
