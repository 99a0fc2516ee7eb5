"""P32: boot, turn, tools, lifetime and scoring have clocks of their own; none ends
another, and what an attempt took is never taken from its scoring."""

import asyncio
import errno
import time
from types import SimpleNamespace

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import require_room
from clawgym_jax.contracts.task import Limits
from sandbox.backends import Bounds
from sandbox.fleet import attempt
from sandbox.fleet.attempt import Clocks, attempt_task
from sandbox.harnesses import Harness, HarnessResult, load
from tests.sandbox.scripted_api import call, reply, serve
from tests.sandbox.small_task import make_task

SLOW_CHECK = """
import time
def grade(workspace, final_message, transcript):
  time.sleep(2.5)
  return {"right": 1.0}
"""


class Endless(Harness):
  """Does not look at its deadline."""

  name = "endless"

  async def run(self, context):
    await asyncio.sleep(60)
    return HarnessResult("never said")


def clocks(monkeypatch, **seconds):
  given = Clocks(**{"tools": 1.0, "work": 1.0, **seconds})
  monkeypatch.setattr(Clocks, "of", classmethod(lambda *_: given))


def test_no_clock_runs_into_another(tmp_path):
  task = make_task(tmp_path / "t", limits=Limits(turns=3, seconds=7.0))
  made = Clocks.of(task, 5)
  assert made.tools == 7.0 and made.work == 7.0 + 5 * made.turn
  assert made.lifetime > made.boot + made.work  # time is left to collect
  assert made.scoring != made.lifetime and made.boot == Bounds().boot_seconds


def test_scoring_has_its_time_however_long_the_work_took(tmp_path, monkeypatch):
  """The work takes longer than the sandbox has left when the checks start."""
  clocks(monkeypatch, boot=2.0, work=1.0, collect=0.2)
  task = make_task(tmp_path / "t", SLOW_CHECK)

  async def whole():
    async with serve(0.8) as api:
      return await attempt_task(task, load("claw"), base_url=api.url)

  result = asyncio.run(whole())
  assert result.outcome.score == 1.0, result.outcome
  assert result.seconds["verify"] >= 2.5


def test_scoring_ends_by_its_own_clock(tmp_path, monkeypatch):
  clocks(monkeypatch, work=60.0, scoring=0.5)
  started = time.monotonic()
  task = make_task(tmp_path / "t", SLOW_CHECK)
  outcome = asyncio.run(attempt_task(task, load("null"))).outcome
  assert outcome.status == "unscored" and "no result within 0.5 s" in outcome.cause
  assert time.monotonic() - started < 30


def test_a_harness_that_never_ends_is_cut_off_and_unscored(tmp_path, monkeypatch):
  clocks(monkeypatch, work=0.3, collect=0.4)
  started = time.monotonic()
  outcome = asyncio.run(attempt_task(make_task(tmp_path / "t"), Endless())).outcome
  assert outcome.status == "unscored" and outcome.cause.startswith(
      "harness_stuck: endless"
  )
  assert time.monotonic() - started < 20


def test_a_sandbox_that_does_not_boot_is_no_score(tmp_path, monkeypatch):
  clocks(monkeypatch, boot=0.0001)
  outcome = asyncio.run(attempt_task(make_task(tmp_path / "t"), load("null"))).outcome
  assert outcome.status == "unscored" and "did not start within" in outcome.cause


def test_the_bound_of_a_call_is_not_the_life_of_the_sandbox(tmp_path):
  task = make_task(tmp_path / "t")
  slow = call("exec", command="sleep 9", timeout=0.2)
  write = call("write", path="out.txt", content="7\n")

  async def whole():
    async with serve(
        reply("", slow), reply("", slow, write), reply("The sum is 7.")
    ) as api:
      return await attempt_task(task, load("claw"), base_url=api.url)

  assert asyncio.run(whole()).outcome.score == 1.0


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT"])
def test_a_full_disk_of_the_host_is_no_score(tmp_path, monkeypatch, code):
  """Nor is one that is too full to begin with (P30)."""

  class Full(Endless):

    async def run(self, context):
      raise OSError(getattr(errno, code), "No space left on device", "/spool")

  task = make_task(tmp_path / "t")
  outcome = asyncio.run(attempt.safe_attempt(task, Full())).outcome
  assert outcome.status == "unscored" and outcome.cause.startswith("no_space: ")
  monkeypatch.setattr(
      attempt, "require_room", lambda folder: require_room(folder, free=1 << 60)
  )
  outcome = asyncio.run(attempt.safe_attempt(task, load("null"))).outcome
  assert outcome.status == "unscored" and "MiB left, of" in outcome.cause


def test_inodes_are_asked_for_too(tmp_path, monkeypatch):
  require_room(tmp_path, free=1, inodes=1)
  disk = SimpleNamespace(f_bavail=1 << 30, f_frsize=4096, f_files=1000, f_favail=9)
  monkeypatch.setattr("clawgym_jax.contracts.files.os.statvfs", lambda _: disk)
  with pytest.raises(UserError, match="has 9 inodes left"):
    require_room(tmp_path)
