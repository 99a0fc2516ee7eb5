"""What a harness is given, and what it gives back.

A harness is a black box that works in a sandbox until it is done. It never
scores itself, and it ends in a `HarnessResult` whatever happens: `infra` marks
an end that the policy could not cause, which must not become a score.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Any

from clawgym_jax.contracts.services import SERVICES
from clawgym_jax.contracts.task import Task
from sandbox.backends import Bounds, Sandbox

STOPS = ("done", "turn_limit", "time_limit", "context_limit", "error")


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
    deadline: on `time.monotonic()`; a model call still open then is infra.
  """

  task: Task
  sandbox: Sandbox
  base_url: str = ""
  api_key: str = ""
  model: str = "policy"
  turns: int = 8
  seconds: float = 120.0
  deadline: float = float("inf")


@dataclass(frozen=True)
class HarnessResult:
  """How it ended.

  Attributes:
    stop: one of `STOPS`; turn_limit, time_limit and context_limit are the
      policy's own doing and keep their score, marked truncated.
    cause: what happened, where stop isn't "done".
    infra: an end for no fault of the policy: the attempt is not scored.
    transcript: OpenAI messages, system turn first.
    model_calls: replies that a model gave.
  """

  final_message: str
  stop: str = "done"
  cause: str | None = None
  infra: bool = False
  transcript: list[dict[str, Any]] = field(default_factory=list)
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
