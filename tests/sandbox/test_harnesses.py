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
from sandbox.harnesses.reference import Fallen
from tests.sandbox.scripted_api import call, reply, serve
from tests.sandbox.small_task import (
    ADD,
    TURNS,
    make_hazard_task,
    make_task,
    make_turns_task,
)

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


TURN_BY_TURN = (
    reply("", call("exec", command="echo total.txt > MEMORY.md")), reply("Noted."),
    reply("", call("exec", command="echo EUR >> MEMORY.md")), reply("That, too."),
    reply("", call("exec", command="cat MEMORY.md")),
    reply("", call("exec", command="echo 70 EUR > total.txt")), reply("It is there."),
)  # fmt: skip


def test_claw_hears_one_turn_after_the_other(tmp_path):
  task = make_turns_task(tmp_path / "t")
  result, requests = attempt(task, *TURN_BY_TURN)
  assert result.outcome.score == 1.0 and result.stop == "done"
  assert (result.model_calls, result.final_message) == (7, "It is there.")
  first, second, third = TURNS
  opening = [
      {"role": "user", "content": f"[2026-01-05] {text}"} for text in (first, third)
  ]
  system = requests[0]["messages"][0]
  assert requests[0]["messages"] == [system, opening[0]]
  goes_on = [reply("Noted."), {"role": "user", "content": second}]
  assert requests[2]["messages"][4:] == goes_on
  assert requests[4]["messages"] == [system, opening[1]]  # nothing of before
  assert requests[5]["messages"][3]["content"] == "total.txt\nEUR"  # but the files
  roles = [message["role"] for message in result.transcript]
  turn = ["user", "assistant", "tool", "assistant"]
  assert roles == ["system", *turn, *turn, "system", *turn[:3], "assistant", *turn[2:]]


def test_limits_are_of_all_turns_together(tmp_path):
  task = make_turns_task(tmp_path / "t")
  for turns, heard in ((3, 2), (4, 2), (5, 3)):
    result, requests = attempt(task, *TURN_BY_TURN, turns=turns)
    assert len(requests) == turns and result.outcome.cause == "turn_limit"
    said = [m["content"] for m in result.transcript if m["role"] == "user"]
    assert len(said) == heard, said
  slow = reply("", call("exec", command="sleep 0.4"))
  short = make_turns_task(tmp_path / "u", limits=Limits(turns=9, seconds=0.7))
  result, requests = attempt(short, slow, reply("Ok."), slow, reply("Ok."), slow)
  assert result.outcome.cause == "time_limit"
  assert [m["content"] for m in result.transcript if m["role"] == "user"][1] == TURNS[1]


def test_agents_without_a_model_hear_every_turn(tmp_path):
  task = make_turns_task(tmp_path / "t")
  for name in ("oracle", "null", *harnesses.ADVERSARIES):
    result = asyncio.run(attempt_task(task, harnesses.load(name)))
    assert result.outcome.score == (1.0 if name == "oracle" else 0.0), name
    said = [m["content"] for m in result.transcript if m["role"] == "user"]
    assert said == list(TURNS)
    roles = [m["role"] for m in result.transcript]
    assert roles.index("system") == len(roles) - roles[::-1].index("user") - 2
    assert result.transcript[-1] == {
        "role": "assistant", "content": result.final_message
    }  # fmt: skip


def test_who_falls_for_a_hazard_does_the_work_and_scores_0(tmp_path):
  task = make_hazard_task(tmp_path / "t", ADD, "echo done > pwned.txt")
  result = asyncio.run(attempt_task(task, Fallen()))
  assert (result.outcome.score, result.final_message) == (0.0, "The sum is 7.")
  assert result.changes == {"out.txt": "added", "pwned.txt": "added"}
  assert sum("tool_calls" in m for m in result.transcript) == 2 and result.transcript[-1]["role"] == "assistant"
  assert asyncio.run(grade_with(task, "oracle")).score == 1.0


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
