"""Who makes attempts: this process, worker processes, or the nodes of a Ray cluster.

An executor runs the jobs that it is given, at once, until each has its result;
how many are in flight is for the caller to bound. It retries nothing: a job
whose worker is gone ends in `WorkerLost`, with the cause, and what an attempt
is worth is decided where the pool is.
"""

from __future__ import annotations

from clawgym_jax.contracts.errors import UserError
from sandbox.fleet.executor.base import Executor, WorkerLost
from sandbox.fleet.executor.local import InProcess, Processes

EXECUTORS = ("local", "ray")

__all__ = [
    "EXECUTORS",
    "Executor",
    "InProcess",
    "Processes",
    "WorkerLost",
    "open_executor",
]


def open_executor(
    kind: str = "local",
    *,
    concurrency: int,
    workers: int = 1,
    per_node: int | None = None,
    backend: str = "bubblewrap",
) -> Executor:
  """The executor `kind`, to be used as a context; `UserError` if it can't be had.

  `workers` are the processes of local, of which 1 is this process. `per_node`
  bounds the attempts at once on a node of Ray; None shares `concurrency` out.
  """
  if kind == "local":
    if per_node is not None:
      raise UserError("--per_node is for --executor=ray; local has --workers")
    workers = min(workers, concurrency)
    return InProcess() if workers == 1 else Processes(workers)
  if kind == "ray":
    if workers != 1:
      raise UserError("--workers is for --executor=local; ray has --per_node")
    from sandbox.fleet.executor.ray import RayNodes  # Ray is an extra

    return RayNodes(concurrency, per_node, backend)
  raise UserError(f"no executor {kind!r}; one of {', '.join(EXECUTORS)}")
