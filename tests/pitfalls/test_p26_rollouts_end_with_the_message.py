"""P26: a rollout that is always refused is tried a bounded number of times, and
the run fails with the server's message."""

import asyncio

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.pool import Pool
from sandbox.fleet import RunSettings, roll_out, run_attempts
from sandbox.fleet.executor import InProcess
from sandbox.fleet.run import _write
from sandbox.harnesses import load
from tests.sandbox.scripted_api import serve
from tests.sandbox.small_task import make_task


class Sessions:
  def __init__(self, url):
    self.url = url

  def register(self, trajectory_id):
    return self.url, "key"


def test_three_attempts_then_the_message(tmp_path):
  task = make_task(tmp_path / "tasks" / "t")
  pool = Pool.open(f"sqlite:///{tmp_path}/pool.db")
  pool.add_group("g", "eval", task.root, 2)

  async def whole():
    async with serve((403, {}, "the quota of this key is used up")) as api:
      await run_attempts(
          pool, "eval", load("claw"), owner="me", concurrency=2,
          gateway=Sessions(api.url), executor=InProcess(),
      )  # fmt: skip
      return len(api.requests)

  assert asyncio.run(whole()) == 2 * 3
  settings = RunSettings(out=tmp_path / "out", harness="claw", tasks=tmp_path / "tasks")
  with pytest.raises(UserError, match="the quota of this key is used up"):
    _write(settings, pool)


def test_an_upstream_that_is_not_there_fails_at_once(tmp_path):
  make_task(tmp_path / "tasks" / "t")
  with pytest.raises(UserError, match="127.0.0.1:9"):
    roll_out(
        RunSettings(
            out=tmp_path / "out",
            harness="claw",
            tasks=tmp_path / "tasks",
            upstream="http://127.0.0.1:9",
        )
    )
