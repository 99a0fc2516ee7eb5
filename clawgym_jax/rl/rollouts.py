"""Rollouts for a trainer: its engine on a port, a worker process, the pool.

The worker is `python -m sandbox.rollout --follow`, spawned, never forked, and
tied to this process: it ends when this one does, kill -9 included. Each life
of a trainer has a pool of its own, so nothing of an earlier life is trained.
Every wait has a deadline, and looks at the engine, the worker and the stop
signals while it lasts; whichever failed is named with its last words.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import clawgym_jax
from clawgym_jax import tethered, web
from clawgym_jax.configs.base import Rollouts as Settings
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.pool import Group, Pool
from clawgym_jax.serve import Engine, EngineError, http
from clawgym_jax.sft.session import StopSignals

CHANNEL = "train"
_OWNER = "trainer"
_POLL_SECONDS = 0.2
_END_SECONDS = 20.0


class Rollouts:
  """Use as a context; `collect` is one step's rollouts."""

  def __init__(
      self, settings: Settings, out: Path, engine: Engine, *, seed: int, stop: StopSignals
  ):
    self._settings = settings
    self._engine = engine
    self._stop = stop
    life = len(list(out.glob("pool-*.db")))
    self._pool_path = (out / f"pool-{life}.db").absolute()
    self._folder = out / f"rollout-{life}"
    self._log = out / f"rollout-{life}.log"
    self._seed = seed
    self._failure: EngineError | None = None
    self._stack = contextlib.ExitStack()

  def __enter__(self) -> Rollouts:
    with contextlib.ExitStack() as stack:
      self.pool = Pool.open(f"sqlite:///{self._pool_path}")
      stack.callback(self.pool.close)
      self.pool.set_policy_version(self._engine.policy_version)
      self._engine.on_failure = self._failed
      url, end = web.serve(http.app(self._engine))
      stack.callback(end)
      self._worker = self._spawn(url, stack)
      self._stack = stack.pop_all()
    return self

  def __exit__(self, *_: object) -> None:
    self._stack.close()

  def collect(
      self,
      step: int,
      tasks: Sequence[Path],
      version: int,
      report: Callable[[str], None],
  ) -> list[Group]:
    """A group of samples for each of `tasks`, all sampled by policy `version`.

    Returns what is judged when nothing is pending, or at the deadline.
    Raises `UserError` where that is nothing.
    """
    for number, task in enumerate(tasks):
      self.pool.add_group(
          f"s{step}.g{number}.{task.name}",
          CHANNEL,
          task.resolve(),
          self._settings.samples_per_group,
      )
    groups: list[Group] = []
    deadline = time.monotonic() + self._settings.step_seconds
    while True:
      self._check()
      pending = self.pool.pending(CHANNEL)
      groups += self.pool.lease_groups(
          CHANNEL,
          len(tasks) + 1024,
          _OWNER,
          2 * self._settings.step_seconds,
          min_policy_version=version,
      )
      report(f"{pending} samples to come")
      if not pending or (groups and time.monotonic() > deadline):
        break
      if time.monotonic() > deadline:
        raise UserError(
            f"rollouts: no group was finished in {self._settings.step_seconds:g} s"
            f" of step {step}, {pending} samples are pending: raise"
            f" rollouts.step_seconds or sample less.{self._last_words()}"
        )
      time.sleep(_POLL_SECONDS)
    if not groups:
      causes = self.pool.dropped(CHANNEL) or {"every group was stale": len(tasks)}
      raise UserError(
          f"rollouts: no sample of step {step} could be judged; causes: {causes}."
          f" Mend them and run the same command again.{self._last_words()}"
      )
    return groups

  def consumed(self, groups: Sequence[Group]) -> None:
    """Their update is done: no one gets them again."""
    self.pool.ack([group.group_id for group in groups], _OWNER)

  def _check(self) -> None:
    self._stop.raise_if_requested()
    if self._failure is not None:
      raise UserError(f"the rollout engine is dead: {self._failure}")
    status = self._worker.poll()
    if status is not None:
      raise UserError(
          f"the rollout worker ended with status {status}.{self._last_words()}"
      )

  def _failed(self, error: EngineError) -> None:
    self._failure = error

  def _spawn(self, url: str, stack: contextlib.ExitStack) -> subprocess.Popen[bytes]:
    settings = self._settings
    command = tethered.command(
        "sandbox.rollout",
        follow=True,
        harness=settings.harness,
        upstream=url,
        out=self._folder,
        pool=f"sqlite:///{self._pool_path}",
        channel=CHANNEL,
        concurrency=settings.concurrency,
        backend=settings.backend,
        max_turns=settings.max_turns,
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        top_p=1.0,
        seed=self._seed,
    )
    home = str(Path(clawgym_jax.__file__).parent.parent)
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    log = stack.enter_context(open(self._log, "ab"))
    worker = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"},
        start_new_session=True,  # Ctrl-C is this process's to answer
    )
    stack.callback(_end, worker)
    return worker

  def _last_words(self) -> str:
    text = self._log.read_text(errors="replace") if self._log.exists() else ""
    lines = [line for line in text.splitlines() if line.strip()][-12:]
    if not lines:
      return f" The worker wrote nothing to {self._log}."
    return f" The end of {self._log}:\n  " + "\n  ".join(lines)


def _end(worker: subprocess.Popen[bytes]) -> None:
  """Interrupts the worker, so that it stops its sandboxes; kills it if it must."""
  if worker.poll() is not None:
    return
  worker.send_signal(signal.SIGINT)
  try:
    worker.wait(_END_SECONDS)
  except subprocess.TimeoutExpired:
    worker.kill()
    worker.wait(_END_SECONDS)
