"""The built-in loop against a scripted API, and the agents without a model."""

from __future__ import annotations

import asyncio
import time

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import Limits
from sandbox import harnesses
from sandbox.backends import Bounds
from sandbox.fleet import attempt_task, grade_with
from sandbox.harnesses import claw
from sandbox.harnesses.adversaries import named_paths
from tests.sandbox.scripted_api import call, reply, serve
from tests.sandbox.small_task import make_task

WRITE = call("write", path="out.txt", content="7\n")
SOLVE = (reply("", call("read", path="data/in.txt")), reply(None, WRITE), reply("The sum is 7."))


def attempt(task, *answers, **settings):
  async def whole():
    async with serve(*answers) as api:
      result = await attempt_task(
          task, harnesses.load("claw"), base_url=api.url, **settings
      )
      return result, api.requests

  return asyncio.run(whole())


def test_claw_solves_by_calls(tmp_path):
  result, requests = attempt(make_task(tmp_path / "t"), *SOLVE, api_key="k", model="m")
  assert result.outcome.score == 1.0 and result.stop == "done"
  assert (result.model_calls, result.final_message) == (3, "The sum is 7.")
  assert result.changes == {"out.txt": "added"}
  assert [m["role"] for m in requests[-1]["messages"]] == [
      "system", "user", "assistant", "tool", "assistant", "tool"
  ]  # fmt: skip
  assert requests[0]["messages"] == requests[-1]["messages"][:2]
  assert requests[-1]["messages"][3]["content"] == "3\n4\n"
  assert requests[-1]["messages"][2] == SOLVE[0]  # back as it came
  assert requests[0]["model"] == "m"


def test_calls_of_one_message_run_in_order(tmp_path):
  result, requests = attempt(
      make_task(tmp_path / "t"),
      reply("", WRITE, call("exec", command="cat out.txt"), call("nope")),
      reply("The sum is 7."),
  )
  contents = [m["content"] for m in requests[1]["messages"][3:]]
  assert contents[:2] == ["Wrote 2 bytes to out.txt", "7"]
  assert contents[2].startswith("Error: no tool 'nope'")
  assert result.outcome.score == 1.0


def test_the_policy_is_told_of_a_call_that_can_not_be_read(tmp_path):
  unread = {**reply("<tool_call>{"), "parse_error": "Error: bad JSON"}
  result, requests = attempt(make_task(tmp_path / "t"), unread, *SOLVE)
  assert requests[1]["messages"][2:] == [
      unread, {"role": "user", "content": "Error: bad JSON"}
  ]  # fmt: skip
  assert result.outcome.score == 1.0 and result.stop == "done"
  result, requests = attempt(make_task(tmp_path / "u"), unread, turns=3)
  assert len(requests) == 3 and result.outcome.cause == "turn_limit"


def test_the_turn_limit_truncates_and_the_reward_stands(tmp_path):
  task = make_task(tmp_path / "t", limits=Limits(turns=2))
  result, requests = attempt(task, reply("", WRITE))
  assert len(requests) == 2
  assert result.outcome.status == "truncated" and result.outcome.cause == "turn_limit"
  assert result.outcome.score == 0.5
  result, requests = attempt(task, reply("", WRITE), turns=1)
  assert len(requests) == 1


def test_time_in_tools_truncates(tmp_path):
  task = make_task(tmp_path / "t", limits=Limits(turns=8, seconds=0.5))
  result, _ = attempt(task, reply("", call("exec", command="sleep 60")))
  assert result.outcome.status == "truncated" and result.outcome.cause == "time_limit"


def test_a_slow_model_costs_the_policy_nothing(tmp_path):
  task = make_task(tmp_path / "t", limits=Limits(turns=8, seconds=0.5))
  result, _ = attempt(task, 1.0)
  assert result.outcome.status == "scored" and result.final_message == "late"


def test_a_full_context_truncates_if_the_model_ever_spoke(tmp_path):
  full = (400, {}, '{"error": {"code": "context_length_exceeded"}}')
  task = make_task(tmp_path / "t")
  result, _ = attempt(task, reply("", WRITE), full)
  assert result.outcome.status == "truncated" and result.outcome.score == 0.5
  result, _ = attempt(task, full)
  assert result.outcome.cause.startswith("no_model_calls: context_limit")


@pytest.mark.parametrize(
    "answer",
    [
        (404, {}, "unknown session"),
        (500, {}, "boom"),
        (200, {}, "no json"),
        (200, {}, '{"choices": []}'),
        (200, {}, '{"choices": [{"message": {"tool_calls": 3}}]}'),
    ],
)
def test_what_the_policy_can_not_cause_is_unscored(tmp_path, answer):
  result, requests = attempt(make_task(tmp_path / "t"), SOLVE[0], answer)
  assert result.outcome.status == "unscored" and len(requests) == 2
  assert result.outcome.cause.startswith("model_call: ")


def test_a_passing_failure_is_retried_within_bounds(tmp_path, monkeypatch):
  busy = (503, {"Retry-After": "0.05"}, "busy")
  task = make_task(tmp_path / "t")
  result, requests = attempt(task, busy, (429, {"Retry-After": "0"}, ""), *SOLVE)
  assert result.outcome.score == 1.0 and len(requests) == 5
  started = time.monotonic()
  result, requests = attempt(task, busy)
  assert result.outcome.cause == "model_call: HTTP 503: busy (tried 6 times)"
  assert len(requests) == claw.RETRIES + 1 and time.monotonic() - started < 10
  monkeypatch.setattr(claw, "_backoff", lambda *_: 0.01)
  gone = asyncio.run(
      attempt_task(task, harnesses.load("claw"), base_url="http://127.0.0.1:9/v1")
  )
  assert "Cannot connect" in gone.outcome.cause and gone.outcome.status == "unscored"


def test_agents_without_a_model(tmp_path):
  task = make_task(tmp_path / "t")
  scores = {
      name: asyncio.run(grade_with(task, name)).score
      for name in ("oracle", "null", *harnesses.ADVERSARIES)
  }
  assert scores == {
      "oracle": 1.0,
      **dict.fromkeys(("null", *harnesses.ADVERSARIES), 0.0),
  }
  assert len(harnesses.ADVERSARIES) >= 8


def test_adversaries_find_the_paths():
  text = "Read /workspace/a/b.csv, e.g. twice; write report.md and `x-1.json`."
  assert named_paths(text) == ["a/b.csv", "report.md", "x-1.json"]


def test_what_a_harness_lacks_is_a_cause(tmp_path):
  task = make_task(tmp_path / "t", requires=("read", "web_search"))
  assert asyncio.run(grade_with(task, "null")).cause == "requires: web_search"
  online = make_task(tmp_path / "n", network="open")
  assert asyncio.run(grade_with(online, "null")).cause.startswith("network: ")


def test_harnesses_by_name():
  with pytest.raises(UserError, match="'openclaw' isn't built in yet"):
    harnesses.load("openclaw")
  with pytest.raises(UserError, match="did you mean 'oracle'"):
    harnesses.load("oracel")


class Weighed(harnesses.Harness):
  """Says what memory a process of its sandbox may have."""

  name = "weighed"

  async def run(self, attempt):
    said = await attempt.sandbox.exec("ulimit -d", 10)
    return harnesses.HarnessResult(said.output.strip())


class Heavy(Weighed):
  """One that needs more than a task's commands, as if it ran inside."""

  bounds = Bounds(memory=1536 << 20)


def test_a_harness_says_what_its_sandbox_may_take(tmp_path):
  check = """
import resource
def grade(workspace, final_message, transcript):
  bound = resource.getrlimit(resource.RLIMIT_DATA)[0]
  return {"checks_have_their_own": float(bound == 1 << 30)}
"""
  task = make_task(tmp_path / "t", check)
  for harness in (Weighed(), Heavy()):
    result = asyncio.run(attempt_task(task, harness))
    assert int(result.final_message) << 10 == harness.bounds.memory
    assert result.outcome.score == 1.0, result.outcome
