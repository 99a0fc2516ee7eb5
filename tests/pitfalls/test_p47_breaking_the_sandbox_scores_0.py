"""P47: what the policy brings about stays a score of 0; only what it can't cause is
unscored."""

import asyncio

import pytest

from sandbox.fleet import attempt_task
from sandbox.harnesses import load
from tests.sandbox.scripted_api import call, reply, serve
from tests.sandbox.small_task import make_task

HOG = "x = bytearray(300 << 20); import time; time.sleep(60)"


@pytest.mark.parametrize(
    "command",
    [
        ":(){ :|:& };: ; sleep 60",
        "(while :; do (while :; do :; done) & done) 2>/dev/null & wait",
        "cat /dev/zero > out.txt; cat /dev/zero > /tmp/x",
        "for i in $(seq 20000); do : > f$i; done",
        "mkdir -p $(printf 'd/%.0s' $(seq 1000)); chmod 0 d; chmod 0 .",
        "truncate -s 60M $(seq 100)",
        f"for i in $(seq 8); do python3 -c '{HOG}' & done; wait",
        "while :; do :; done",
        "(while :; do head -c 9000000 /dev/zero > f; rm -f f; done) & sleep .5",
        "kill -9 1; kill -STOP 1; kill -9 -1",
        "rm -rf /workspace /tmp /* 2>/dev/null; exec 9<>/proc/1/mem",
        "mkfifo out.txt; ln -s out.txt loop; ln -s loop out2; ln -sf out2 loop",
        "yes | head -c 3000000000",
        "printf '\\377' > out.txt; touch $'\\377\\376'; chmod 0 out.txt",
    ],
)
def test_scored_0(tmp_path, command, monkeypatch):
  monkeypatch.setattr("sandbox.tools.EXEC_SECONDS", 2.0)
  check = """
import pathlib
def grade(workspace, final_message, transcript):
  path = pathlib.Path(workspace, "out.txt")
  return {"right": float(path.is_file() and path.read_bytes() == b"7\\n")}
"""
  task = make_task(tmp_path / "t", check)

  async def whole():
    async with serve(reply("", call("exec", command=command)), reply("x")) as api:
      return (await attempt_task(task, load("claw"), base_url=api.url)).outcome

  outcome = asyncio.run(whole())
  assert (outcome.status, outcome.score) == ("scored", 0.0), outcome
