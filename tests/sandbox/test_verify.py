"""Checks run apart from the agent, and only sound results become scores."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandbox.backends import Bounds
from sandbox.backends.base import Entry, pack, pack_entries
from sandbox.verify import checks, verify
from tests.sandbox.small_task import make_task

GOOD = pack({"out.txt": b"7\n"})


def judge(task, snapshot=GOOD, final="The sum is 7.", transcript=(), **settings):
  return asyncio.run(verify(task, snapshot, final, list(transcript), **settings))


def test_code_is_the_weighted_mean(tmp_path):
  task = make_task(tmp_path / "t", check_weights={"right": 3.0})
  assert judge(task).score == 1.0
  outcome = judge(task, final="")
  assert (outcome.status, outcome.code) == ("scored", 0.75)
  assert outcome.checks == {"right": 1.0, "said": 0.0}


@pytest.mark.parametrize(
    "check, cause",
    [
        ("def grade(*a): 1/0", "ZeroDivisionError: division by zero (check.py line 1)"),
        ("x ++", "SyntaxError"),
        ("", "has no attribute 'grade'"),
        ("def grade(*a): return {'x': float('nan')}", "x = nan is not in [0, 1]"),
        ("def grade(*a): return {'x': float('inf')}", "x = inf is not in [0, 1]"),
        ("def grade(*a): return {'x': -0.5}", "x = -0.5 is not in [0, 1]"),
        ("def grade(*a): return {'x': 1.5}", "x = 1.5 is not in [0, 1]"),
        ("def grade(*a): return {'x': 'y'}", "ValueError"),
        ("def grade(*a): return {}", "grade gave no checks"),
        ("def grade(*a): return 1.0", "TypeError: grade gave float"),
        ("import os\ndef grade(*a): os._exit(0)", "without a result (exit code 0)"),
        ("import os\ndef grade(*a): os.kill(os.getpid(), 9)", "(exit code 137)"),
        ("raise SystemExit(0)", "SystemExit"),
        ("def grade(*a): return {'x': [0] * 10**9}", "MemoryError"),
    ],
)
def test_a_bad_check_is_unscored_with_its_cause(tmp_path, check, cause):
  outcome = judge(make_task(tmp_path / "t", check))
  assert outcome.status == "unscored"
  assert outcome.cause.startswith("check_error: ") and cause in outcome.cause


def test_a_missing_weighted_check_is_an_error(tmp_path):
  task = make_task(tmp_path / "t", check_weights={"other": 1.0})
  assert judge(task).cause == "check_error: grade gave no other, which has a weight"


STARTS_A_SCRIPT = """
import subprocess
def grade(workspace, final_message, transcript):
  subprocess.run(["sh", "run.sh"], cwd=workspace)
  return {"right": 0.5}
"""


@pytest.mark.parametrize(
    "script, cause",
    [
        (b"exit 0", None),
        (b"kill -9 $PPID", "checks_ended: the checks ended without a result"),
        (b"sleep 30", "checks_ended: no result within 2 s"),
    ],
)
def test_what_the_agent_left_can_not_escape_its_score(tmp_path, script, cause):
  """A workspace that ends its own checks scores 0; the untouched one shows that they work."""
  outcome = judge(
      make_task(tmp_path / "t", STARTS_A_SCRIPT), pack({"run.sh": script}), seconds=2.0
  )
  assert outcome.status == "scored"
  assert outcome.score == (0.5 if cause is None else 0.0)
  assert (outcome.cause or "").startswith(cause or "")


def test_a_check_out_of_time_is_unscored(tmp_path):
  task = make_task(tmp_path / "t", "def grade(*a):\n  while True: pass")
  started = time.monotonic()
  assert judge(task, seconds=1.0).cause == "check_error: no result within 1 s"
  assert time.monotonic() - started < 10


def test_checks_see_their_data_the_messages_and_no_more(tmp_path):
  check = """
import os, pathlib, sys, subprocess
from helper import TEN
here = pathlib.Path(__file__).parent
def grade(workspace, final_message, transcript):
  print("noise"); subprocess.run("echo more noise; echo noise >&2", shell=True)
  return {
    "data": float((here / "want.txt").read_text() == "7\\n"),
    "helper": float(TEN == 10),
    "transcript": float(transcript == [{"role": "user", "content": "\\ud800"}]),
    "input_gone": float(not os.path.exists("/verify/input.json")),
    "clock": float(os.environ["CLAWGYM_NOW"] == "2026-01-05T09:00:00Z"),
    "isolated": float("/workspace" not in sys.path and "" not in sys.path),
  }
"""
  task = make_task(tmp_path / "t", check)
  (task.checks / "want.txt").write_text("7\n")
  (task.checks / "helper.py").write_text("TEN = 10\n")
  outcome = judge(task, transcript=[{"role": "user", "content": "\ud800"}])
  assert outcome.score == 1.0, outcome


def test_a_verifier_holds_what_the_agent_s_sandbox_held(tmp_path, monkeypatch):
  monkeypatch.setattr(checks, "_LEAST", Bounds(disk=1 << 20, inodes=99))
  task = make_task(tmp_path / "t")
  state = pack({"out.txt": b"7\n", "large": bytes(5 << 20)})
  roomy, tight = Bounds(disk=5 << 20, inodes=9), Bounds(disk=1 << 20, inodes=9)
  assert judge(task, state, agent=roomy).score == 1.0
  assert judge(task, state, agent=tight).cause.startswith("verifier_lost: No space")


def test_a_link_can_not_point_a_check_at_its_own_answer(tmp_path):
  check = """
import pathlib
def grade(workspace, final_message, transcript):
  path = pathlib.Path(workspace, "out.txt")
  want = pathlib.Path(__file__).with_name("want.txt").read_text()
  return {"right": float(path.is_file() and path.read_text() == want)}
"""
  task = make_task(tmp_path / "t", check)
  (task.checks / "want.txt").write_text("7\n")
  links = pack_entries([
      Entry("out.txt", b"/checks/want.txt", "link"), Entry("d", b"../checks", "link")
  ])  # fmt: skip
  assert judge(task, links).score == 0.0


def test_any_message_and_name_gets_through(tmp_path):
  said = {
      "role": "user\n\"\\\x00\x7fü語🜁\ud800", "n": [0, -1, 2**70, 1.5, -1e-300, True],
      "deep": {"a": [[[{"b": None}]]], "": {}},
  }  # fmt: skip
  check = f"""
def grade(workspace, final_message, transcript, services):
  nan = transcript[1]["nan"]
  return {{
    {said["role"]!r}: float(transcript[0] == {said!r} and services == [{said!r}]),
    "nan": float(nan[0] != nan[0] and nan[1:] == [float("inf"), -float("inf")]),
    "said": float(final_message == {said["role"]!r}),
  }}
"""
  nan = {"nan": [float("nan"), float("inf"), -float("inf")]}
  outcome = judge(
      make_task(tmp_path / "t", check), final=said["role"],
      transcript=[said, nan], reports=[said],
  )  # fmt: skip
  assert outcome.checks == {said["role"]: 1.0, "nan": 1.0, "said": 1.0}, outcome


def test_a_check_has_the_python_that_others_have(tmp_path):
  """What site does is done when a check needs it."""
  check = """
import subprocess, sys
try:
  import no_such_module
except ImportError:
  pass
asked = [sys.executable, "-I", "-c", "import sys; print(*sys.path, sep='\\\\n')"]
usual = subprocess.run(asked, capture_output=True, text=True).stdout.splitlines()
import site
def grade(*_):
  try: exit(3)
  except SystemExit as error: code = error.code
  return {
    "path": float(set(filter(None, usual)) <= set(sys.path) and len(usual) > 2),
    "exit": float(code == 3 and callable(quit)),
    "spec": float(sys.modules[__name__].__spec__.origin == __file__),
  }
"""
  outcome = judge(make_task(tmp_path / "t", check))
  assert outcome.score == 1.0, outcome
