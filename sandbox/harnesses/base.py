"""What a harness is given, and what it gives back.

A harness is a black box that works in a sandbox until it is done. It never
scores itself, and it ends in a `HarnessResult` whatever happens: `infra` marks
an end that the policy could not cause, which must not become a score.

What every harness promises of the task's user turns:

  - they are said in order, each once the agent has ended the one before it, as
    they are written; a harness may put words around them;
  - a fresh one is said in a new conversation, whose context holds nothing of the
    earlier ones; in the sandbox all is as it was left, running programs too;
  - the bounds are of all turns together, and whoever runs into one hears no more;
  - the final message is the last that the agent said, and the transcript has the
    messages of all conversations in order; each opens with a system message, which
    the first may lack, and no other message is one.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Any

from clawgym_jax.contracts.services import SERVICES
from clawgym_jax.contracts.task import Task, UserTurn
from sandbox.backends import Bounds, Sandbox

TURN_SECONDS = 600.0
STOPS = ("done", "turn_limit", "time_limit", "context_limit", "error")
_NEW_CONVERSATION = "A new conversation: nothing of the one before is known here."

Messages = list[dict[str, Any]]  # of OpenAI's chat API


@dataclass(frozen=True)
class HarnessContext:
  """One attempt.

  Attributes:
    base_url: of an OpenAI-compatible API, ending in /v1; its path names the
      session. Empty where `needs_model` is False.
    model: the model's name, sent with each call.
    turns: model calls at most.
    seconds: what the policy may spend in tools. Waiting for the model does not
      count, or a loaded engine would lower the reward.
    turn_seconds: for one model call; one that takes longer is infra.
    deadline: on `time.monotonic()`; a model call still open then is infra.
  """

  task: Task
  sandbox: Sandbox
  base_url: str = ""
  api_key: str = ""
  model: str = "policy"
  turns: int = 8
  seconds: float = 120.0
  turn_seconds: float = TURN_SECONDS
  deadline: float = float("inf")


@dataclass(frozen=True)
class HarnessResult:
  """How it ended.

  Attributes:
    stop: one of `STOPS`; turn_limit, time_limit and context_limit are the
      policy's own doing and keep their score, marked truncated.
    cause: what happened, where stop isn't "done".
    infra: an end for no fault of the policy: the attempt is not scored.
    transcript: OpenAI messages, see above.
    model_calls: replies that a model gave.
  """

  final_message: str
  stop: str = "done"
  cause: str | None = None
  infra: bool = False
  transcript: Messages = field(default_factory=list)
  model_calls: int = 0


class Harness(abc.ABC):
  """One kind of agent. Stateless: one object serves many attempts at once.

  `provides` are the tools that it has and the services that it reaches, which
  a shell is enough for; a task that requires more is not its. `bounds` are those
  of the sandbox that it works in, but for the times: one that itself runs inside
  takes more than a task's commands do. The checks' sandbox is bound apart.
  """

  name: str
  needs_model: bool = False
  provides: frozenset[str] = frozenset({"read", "write", "edit", "exec", *SERVICES})
  bounds: Bounds = Bounds()

  @abc.abstractmethod
  async def run(self, attempt: HarnessContext) -> HarnessResult:
    """Works until done; raises only `SandboxLost`."""


def said_by_user(turn: UserTurn, before: Messages) -> Messages:
  """What an agent without a model has in its transcript as the user speaks, after
  the messages of `before`."""
  said = {"role": "user", "content": turn.text}
  if turn.fresh and before:
    return [{"role": "system", "content": _NEW_CONVERSATION}, said]
  return [said]


def answering(task: Task, final: str) -> Messages:
  """The transcript of an agent that answers the last turn with `final`, and those
  before it with nothing."""
  transcript: Messages = []
  for turn in task.user_turns:
    transcript += said_by_user(turn, transcript)
    transcript.append({"role": "assistant", "content": ""})
  transcript[-1]["content"] = final
  return transcript
