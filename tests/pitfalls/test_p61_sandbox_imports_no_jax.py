"""P61: the sandbox launcher, its commands and its workers never import jax, and
workers are spawned: a thread or lock of a driver that did is not theirs."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from sandbox.fleet.executor import Processes
from sandbox.fleet.job import job_of
from tests.sandbox.small_task import make_task


def test_no_jax():
  code = (
      "import sys, sandbox.rollout, sandbox.curate, sandbox.reap, sandbox.teacher;"
      "bad = {'jax', 'jaxlib', 'flax', 'optax', 'orbax', 'torch'} & set(sys.modules);"
      "sys.exit(f'imported: {bad}' if bad else 0)"
  )
  subprocess.run(
      [sys.executable, "-c", code], check=True, timeout=60,
      env={**os.environ, "PYTHONPATH": os.getcwd()},
  )  # fmt: skip


def test_workers_of_a_driver_with_jax_have_none(tmp_path):
  import jax.numpy as jnp

  jnp.zeros(3).block_until_ready()  # this process has jax and its threads

  def mapped(pid):
    return "jaxlib" in Path(f"/proc/{pid}/maps").read_text()

  async def whole():
    async with Processes(1) as executor:
      result = await executor.run(job_of(make_task(tmp_path / "t").root, "oracle"))
      (worker,) = (each._process.pid for each in executor._workers)
      return result.outcome.score, mapped(worker), mapped(os.getpid())

  assert asyncio.run(asyncio.wait_for(whole(), 60)) == (1.0, False, True)
