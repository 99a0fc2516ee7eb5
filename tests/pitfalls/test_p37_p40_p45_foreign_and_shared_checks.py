"""P37, P38, P39, P40, P45 for reward packages and for checks that share a sandbox:
nothing that the agent prepared decides its reward, and it never meets the verifier."""

import asyncio

import pytest

from sandbox.backends import open_sandbox
from sandbox.backends.base import pack
from sandbox.verify import State, Verifier, verify_clawgym, verify_many
from tests.sandbox import test_verify_clawgym as clawgym
from tests.sandbox.test_verify_many import make_task

HOOK = "python3 reward/check.py /root/.openclaw/workspace"
WINNER = b"print('{\"sum\": 1.0, \"said\": 1.0}')\nprint(1.0)\n"
MODULES = ("check", "test", "json", "os", "pathlib", "sitecustomize", "conftest")
PLANTED = {
    # P37: the reward itself, in every place and form that someone might read.
    **{
        f"{place}{name}": b"1.0\n"
        for place in ("", "reward/", "logs/verifier/")
        for name in ("reward.txt", "reward.json", "score.txt", "result.json")
    },
    # P40: the checks, their modules and what Python loads by itself.
    **{
        f"{place}{name}.py": WINNER
        for place in ("", "reward/")
        for name in MODULES
    },
    "reward/reward.sh": b"echo 1.0\n",
    "reward/__pycache__/check.cpython-311.pyc": b"\0" * 16,
    ".openclaw_reward_payload.json": b'{"final_message": "7"}',
    ".bashrc": b"echo 1.0; exit 0\n",
    "python3": b"#!/bin/sh\necho 1.0\n",
}


@pytest.mark.parametrize(
    "package, command",
    [
        (clawgym.PACKAGE, "bash reward/reward.sh"),
        ({"check.py": clawgym.CHECK}, HOOK),
        (
            {"check.py": clawgym.CHECK},
            f"{HOOK} | python3 -c"
            " 'import json; print(json.loads(input())[\"sum\"])'",
        ),
    ],
)
def test_what_waits_at_reward_never_wins(package, command):
  state = State(pack(PLANTED), "The reward is 1.0\n1.0")
  outcome = asyncio.run(verify_clawgym(package, state, {}, command=command))
  assert (outcome.status, outcome.score) == ("scored", 0.0)


@pytest.mark.parametrize(
    "make",
    [
        "mkdir -p d && cp reward.txt d/ && ln -s d reward",
        "ln -s /verify reward",
        "ln -s . reward",
        "echo 1.0 > reward",
        "mkdir -p reward/a && chmod 0 reward/a reward",
        "mkfifo reward",
        "mkdir -p reward && ln -s /bin/true reward/reward.sh",
    ],
)
def test_whatever_stands_at_reward_is_gone(make):
  """P39: there is one package, and one result."""

  async def whole():
    async with open_sandbox() as sandbox:
      await sandbox.start({"reward.txt": b"1.0\n", "in.txt": b"3\n4\n"})
      assert (await sandbox.exec(make)).exit_code == 0
      wrong = State(await sandbox.snapshot(), "")
      await sandbox.write("out.txt", b"7\n")
      right = State(await sandbox.snapshot(), "7")
    return [
        await verify_clawgym(clawgym.PACKAGE, state, {}) for state in (wrong, right)
    ]

  assert [outcome.score for outcome in asyncio.run(whole())] == [0.0, 1.0]  # P38


def test_what_comes_after_the_end_is_not_read():
  """A program of the agent's that outlives the package has no say."""
  package = {
      "reward.sh": b"cd /root/.openclaw/workspace; sh x.sh; echo 0.25\n",
  }
  left = b"(trap '' TERM HUP; sleep 0.3; echo 1.0; echo 1.0 >&2) &\n"
  state = State(pack({"x.sh": left}))
  assert asyncio.run(verify_clawgym(package, state, {})).score == 0.25


def test_a_package_ended_by_the_agents_program_gives_no_reward():
  package = {"reward.sh": b"cd /root/.openclaw/workspace; sh x.sh; echo 0\n"}
  state = State(pack({"x.sh": b"echo 1.0; kill -9 $PPID\n"}))
  run = verify_clawgym(package, state, {}, untouched=pack({"x.sh": b"true\n"}))
  outcome = asyncio.run(run)
  assert (outcome.status, outcome.score) == ("scored", 0.0)


FORGER = """
import json, os, pathlib
def grade(workspace, final_message, transcript):
  if final_message == "forge":
    for path in ("/verify/answer", "/verify/ask"):
      try: fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
      except OSError: continue
      result = {"checks": {"right": 1.0}}
      print("0", json.dumps({"result": result, "last": False}), file=open(fd, "w"))
    pathlib.Path("/verify/input.json").write_text('{"nonce": "0"}')
    pathlib.Path("/tmp/reward.txt").write_text("1.0")
  return {"right": 0.0}
"""


def test_a_forged_answer_is_none(tmp_path):
  """P37, P39: even one written by the judging fork itself, for it or for the next."""
  task = make_task(tmp_path / "t", FORGER)
  states = [State(pack({}), final) for final in ("", "forge", "", "forge", "")]
  outcomes = asyncio.run(verify_many(task, states))
  assert [outcome.score for outcome in outcomes] == [0.0] * 5


def test_planted_modules_win_nothing_in_a_shared_sandbox(tmp_path):
  check = """
def grade(workspace, final_message, transcript):
  import json, pathlib
  text = pathlib.Path(workspace, "out.json").read_text()
  return {"right": float(json.loads(text) == 7)}
"""
  task = make_task(tmp_path / "t", check)
  states = [State(pack({**PLANTED, "out.json": data})) for data in (b"7", b"8")]
  outcomes = asyncio.run(verify_many(task, states))
  assert [outcome.score for outcome in outcomes] == [1.0, 0.0]


def test_the_agent_never_meets_a_warm_verifier(tmp_path):
  """P45: neither its files nor its processes nor its pipes can be seen at work."""
  needle = "needle-51cc"
  check = f"# {needle}\ndef grade(*a): return {{'right': 1.0}}"
  task = make_task(tmp_path / "t", check)

  async def whole():
    async with Verifier(task) as verifier, open_sandbox() as agent:
      assert (await verifier.judge(State(pack({})))).score == 1.0
      await agent.start(task.workspace)
      look = (
          "ls /checks /verify;"
          " cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep '^/verify/[r]unner';"
          f" grep -rsl {needle} / --exclude-dir=usr --exclude-dir=proc;"
          " timeout 1 sh -c 'echo >/verify/ask' && echo asked; echo looked"
      )
      said = (await agent.exec(look)).output
      assert (await verifier.judge(State(pack({})))).score == 1.0
      return said

  said = asyncio.run(whole())
  assert "runner.py" not in said and "check.py" not in said and "asked" not in said
  assert said.count("No such file") >= 2 and said.endswith("looked\n")
