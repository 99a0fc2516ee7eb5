"""P66: a canary secret of the controller's environment is in no artefact of a run,
nor in anything the agent can read."""

import asyncio
import json

from sandbox.fleet import RunSettings, attempt_task, roll_out
from sandbox.harnesses import load
from tests.sandbox.scripted_api import call, reply, serve
from tests.sandbox.small_task import execs, make_task, solve_by

CANARY = "canary-9f27b1"
LOOK = "env; cat /proc/*/environ /proc/*/cmdline; mount; cat /proc/net/* 2>/dev/null"


def test_no_artefact_holds_it(tmp_path, monkeypatch):
  for name in ("OPENAI_API_KEY", "UPSTREAM_API_KEY", "MY_ODD_NAME"):
    monkeypatch.setenv(name, CANARY)
  task = make_task(tmp_path / "tasks" / "t")
  solve_by(task, *execs(LOOK))
  roll_out(
      RunSettings(out=tmp_path / "out", harness="oracle", tasks=tmp_path / "tasks")
  )
  files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
  assert any("CLAWGYM_NOW" in path.read_text(errors="replace") for path in files)
  for path in files:
    assert CANARY.encode() not in path.read_bytes(), path


def test_the_agent_sees_not_even_its_session_token(tmp_path):
  task = make_task(tmp_path / "t")

  async def whole():
    async with serve(reply("", call("exec", command=LOOK)), reply("x")) as api:
      result = await attempt_task(
          task, load("claw"), base_url=api.url, api_key=CANARY
      )
      return json.dumps([api.requests, result.transcript])

  seen = asyncio.run(whole())
  assert "CLAWGYM_NOW" in seen and CANARY not in seen
