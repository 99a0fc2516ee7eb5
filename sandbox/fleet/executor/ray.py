"""Attempts on the nodes of a Ray cluster: one actor a node, a bounded number each.

Nodes that join are used, nodes that are lost are forgotten; an actor that is
dead or silent fails what it had and is made anew. Ray itself retries nothing,
so a result arrives once, or its job is lost. A job goes to the node with the
most room, and waits while none has any. A task's directory travels with its
jobs to nodes that don't see it. The cluster is the one that RAY_ADDRESS names
or that runs on this machine; without either, Ray starts one here. A node
without CPUs (`ray start --num-cpus=0`) makes no attempts.

Every node needs this package, and what its backend needs; a node that can't
run the backend is left out, and said.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Self

from clawgym_jax.contracts.errors import UserError
from sandbox.backends import check_backend
from sandbox.fleet.attempt import AttemptResult
from sandbox.fleet.executor.base import Executor, WorkerLost, unseen, unsent
from sandbox.fleet.job import Job, TaskUnseen, make, packed
from sandbox.reap import reap
from sandbox.verify import Verifiers

LOOK_SECONDS = 2.0  # between two looks at the cluster
_START_SECONDS = 120.0  # of an actor
_SILENT_LOOKS = 30  # until an actor that does not answer is given up
_EMPTY_LOOKS = 150  # without a usable node, until the run fails


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
  """Ray puts handlers of its own in the place of the program's."""
  numbers = (signal.SIGINT, signal.SIGTERM)
  kept = {number: signal.getsignal(number) for number in numbers}
  try:
    yield
  finally:
    if threading.current_thread() is threading.main_thread():
      for number, handler in kept.items():
        signal.signal(number, handler)


os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told of this
try:
  with _signals_kept():
    import ray
    from ray import exceptions
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError:
  raise UserError(
      "--executor=ray needs Ray, which isn't installed:"
      " python3 -m pip --python .venv/bin/python install 'ray>=2.40'"
  ) from None


class Attempts:
  """The actor: makes attempts on its node, in an event loop of its own.

  Ray's may be another kind of loop; attempts run in one kind everywhere.
  """

  def __init__(self) -> None:
    self._loop = asyncio.new_event_loop()
    self._verifiers = Verifiers()  # they end with this process
    threading.Thread(target=self._loop.run_forever, daemon=True).start()

  async def check(self, backend: str) -> str | None:
    """Why this node can't be used, or None; removes what dead runs left."""
    try:
      await asyncio.to_thread(check_backend, backend)
    except UserError as error:
      return str(error)
    await asyncio.to_thread(reap)
    return None

  async def lives(self) -> None:
    await self._there(asyncio.sleep(0))

  async def run(self, job: Job) -> AttemptResult | None:
    """The result, or None where the task can't be seen from here."""
    try:
      return await self._there(make(job, self._verifiers))
    except TaskUnseen:
      return None

  async def _there(self, work: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.wrap_future(
        asyncio.run_coroutine_threadsafe(work, self._loop)
    )


@dataclass(eq=False)
class _Node:
  """A node that is used: its actor, and what its driver knows of it."""

  id: str
  actor: Any
  load: int = 0
  sees_tasks: bool = True
  asking: asyncio.Task[None] | None = None  # whether it lives
  silent: int = 0  # looks since it was asked


class RayNodes(Executor):
  """See the module's docstring; `per_node` None shares `concurrency` out."""

  def __init__(self, concurrency: int, per_node: int | None, backend: str) -> None:
    self._concurrency = concurrency
    self._per_node = per_node
    self._backend = backend
    self._nodes: dict[str, _Node] = {}
    self._joining: dict[str, asyncio.Task[None]] = {}
    self._refused: dict[str, str] = {}  # why a node isn't used, while it is there
    self._changed = asyncio.Condition()
    self._failure: str | None = None
    self._watching: asyncio.Task[None] | None = None
    self._connected = False  # by this executor

  async def __aenter__(self) -> Self:
    if not ray.is_initialized():
      with _signals_kept():
        try:
          ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
          raise UserError(
              f"no Ray cluster can be had: {error}; start one (ray start --head), or"
              " correct RAY_ADDRESS"
          ) from None
      self._connected = True
    try:
      self.host = ray.util.get_node_ip_address()
      await self._look()
      await asyncio.gather(*self._joining.values())
      if not self._nodes:
        raise UserError(f"no node of the Ray cluster can be used: {self._why()}")
      if self._per_node is None:
        self._per_node = -(-self._concurrency // len(self._nodes))
      self._watching = asyncio.create_task(self._watch())
    except BaseException:
      await self.__aexit__()
      raise
    return self

  async def __aexit__(self, *exception: object) -> None:
    running = [self._watching, *self._joining.values()]
    running += [node.asking for node in self._nodes.values()]
    running = [task for task in running if task is not None]
    for task in running:
      task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    for node in self._nodes.values():
      _kill(node.actor)
    self._nodes.clear()
    if self._connected:
      with _signals_kept():
        ray.shutdown()

  async def run(self, job: Job, *, alone: bool = False) -> AttemptResult:
    node = await self._with_room()
    actor = node.actor
    try:
      if alone:
        actor = await self._actor(node.id)
      return await self._made(node, actor, job)
    except exceptions.RayTaskError as error:
      return unsent("the result", error.cause)
    except (exceptions.RayError, UserError, TimeoutError) as error:
      if actor is node.actor and isinstance(error, exceptions.RayError):
        await self._forget(node)
      raise WorkerLost(_named(error)) from None
    finally:
      if actor is not node.actor:
        _kill(actor)
      node.load -= 1
      await self._tell()

  async def _made(self, node: _Node, actor: Any, job: Job) -> AttemptResult:
    if node.sees_tasks:
      result = await _called(actor, job)
      if result is not None:
        return result
    try:
      job = await asyncio.to_thread(packed, job)
    except (TaskUnseen, OSError) as error:
      return unseen(error)
    node.sees_tasks = False
    return await _called(actor, job)

  async def _with_room(self) -> _Node:
    """The node with the least to do, with one more on it; waits for room."""
    async with self._changed:
      while True:
        if self._failure is not None:
          raise UserError(self._failure)
        room = [n for n in self._nodes.values() if n.load < self._per_node]
        if room:
          node = min(room, key=lambda n: n.load)
          node.load += 1
          return node
        await self._changed.wait()

  async def _tell(self) -> None:
    async with self._changed:
      self._changed.notify_all()

  # Which nodes there are.

  async def _watch(self) -> None:
    empty = 0
    try:
      while empty < _EMPTY_LOOKS:
        await asyncio.sleep(LOOK_SECONDS)
        await self._look()
        empty = 0 if self._nodes else empty + 1
      self._failure = f"no node of the Ray cluster can be used: {self._why()}"
    except Exception as error:
      self._failure = f"the Ray cluster can't be reached any more: {_named(error)}"
    self._failure += "; mend that and run the same command again"
    await self._tell()

  async def _look(self) -> None:
    """Brings what is known of the nodes up to date; joining takes its own time."""
    there = {
        node["NodeID"]
        for node in await asyncio.to_thread(ray.nodes)
        if node["Alive"] and node["Resources"].get("CPU", 0) > 0
    }
    self._refused = {n: why for n, why in self._refused.items() if n in there}
    for node in list(self._nodes.values()):
      if node.id not in there or node.silent > _SILENT_LOOKS:
        await self._forget(node)
      elif node.asking is None:
        node.asking = asyncio.create_task(self._ask(node))
      else:
        node.silent += 1
    known = self._nodes.keys() | self._joining.keys() | self._refused.keys()
    for name in there - known:
      self._joining[name] = asyncio.create_task(self._join(name))

  async def _join(self, name: str) -> None:
    try:
      self._nodes[name] = _Node(name, await self._actor(name))
      await self._tell()
    except UserError as error:
      self._refused[name] = str(error)
      print(f"rollout: node {name[:8]} is left out: {error}", file=sys.stderr)
    except (exceptions.RayError, TimeoutError):
      pass  # the next look tries again, if the node is still there
    finally:
      del self._joining[name]

  async def _ask(self, node: _Node) -> None:
    try:
      await node.actor.lives.remote()
      node.asking, node.silent = None, 0
    except exceptions.RayError:
      await self._forget(node)

  async def _forget(self, node: _Node) -> None:
    """Its actor is used no more; what it still had fails with `RayError`."""
    if self._nodes.get(node.id) is node:
      del self._nodes[node.id]
      _kill(node.actor)

  async def _actor(self, name: str) -> Any:
    """A new actor on the node `name`; `UserError` where attempts can't be made."""
    actor = (
        ray.remote(Attempts)
        .options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=False),
            max_concurrency=self._concurrency + 1,  # and to say that it lives
            max_restarts=0,
            max_task_retries=0,
            num_cpus=0,  # what bounds it is the number of attempts
        )
        .remote()
    )
    try:
      async with asyncio.timeout(_START_SECONDS):
        refusal = await actor.check.remote(self._backend)
      if refusal is not None:
        raise UserError(refusal)
    except BaseException:
      _kill(actor)
      raise
    return actor

  def _why(self) -> str:
    return "; ".join(sorted(set(self._refused.values()))) or "none has CPUs"


async def _called(actor: Any, job: Job) -> AttemptResult | None:
  try:
    reference = actor.run.remote(job)
  except exceptions.RayError:
    raise
  except Exception as error:  # pickle raises anything
    return unsent("the job", error)
  try:
    return await reference
  except asyncio.CancelledError:
    ray.cancel(reference)
    raise


def _kill(actor: Any) -> None:
  with contextlib.suppress(Exception):  # it is dead already
    ray.kill(actor)


def _named(error: Exception) -> str:
  said = str(error).strip().splitlines()
  return f"{type(error).__name__}: {said[0] if said else ''}"
