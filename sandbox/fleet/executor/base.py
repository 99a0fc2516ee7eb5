"""What every executor promises; see the package's docstring."""

from __future__ import annotations

import abc
from typing import Self

from clawgym_jax.contracts.trajectory import unscored
from sandbox.fleet.attempt import AttemptResult
from sandbox.fleet.job import Job


class WorkerLost(Exception):
  """What made the attempt is gone, or does not answer; the text says how."""


class Executor(abc.ABC):
  """Use it as `async with`; leaving it ends the workers and what they started."""

  host = "127.0.0.1"  # an address of this machine that the workers reach

  async def __aenter__(self) -> Self:
    return self

  async def __aexit__(self, *exception: object) -> None:
    return None

  @abc.abstractmethod
  async def run(self, job: Job, *, alone: bool = False) -> AttemptResult:
    """Makes the attempt; raises `WorkerLost`. Cancelled, the attempt is given up.

    With `alone` its worker makes nothing else: if it dies of this job, no other
    dies with it. `UserError` where no worker can be had any more.
    """


def unsent(what: str, error: Exception) -> AttemptResult:
  """The result of a job of which something could not be sent."""
  cause = f"{what} can't be sent: {type(error).__name__}: {error}"
  return AttemptResult(unscored(f"internal_error: {cause}"))


def unseen(error: Exception) -> AttemptResult:
  """The result of a job whose task is gone."""
  return AttemptResult(unscored(f"bad_task: {error}"))
