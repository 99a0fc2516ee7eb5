"""The endpoint of `--generator=llm` fails in every way; what is given of it is checked."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

import pytest

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import list_tasks
from data_gen.llm import pipeline
from data_gen.llm.endpoint import Endpoint, Lost
from data_gen.llm.settings import Settings, checked_endpoint
from tests.data_gen.fake_llm import CUT, KEY, carried_out, serving, settings


def test_what_may_pass_is_tried_again_and_counted(fake, tmp_path, quick, sound):
  fake.script["idea"] = [
      (429, {"Retry-After": "0"}, "slow down"), (500, {}, "oops"), CUT, (200, {}, "{}"),
  ]  # fmt: skip
  fake.script["solve"] = [(503, {"Retry-After": "0.01"}, ""), 2.5]
  summary = carried_out(fake, tmp_path)
  assert summary["admitted"] == 1
  assert summary["stages"]["idea"]["failed"] == {
      "connection": 1, "http_429": 1, "http_500": 1, "malformed": 1,
  }  # fmt: skip
  assert summary["stages"]["solve"]["failed"] == {"http_503": 1, "timeout": 1}
  said = json.loads((tmp_path / "llm.json").read_text())
  assert said["stages"]["solve"]["failed"] == {"http_503": 1, "timeout": 1}


def test_an_endpoint_that_stays_down_loses_ideas_and_decides_nothing(
    fake, tmp_path, quick, sound
):
  fake.always["idea"] = (500, {}, "broken")
  summary = carried_out(fake, tmp_path, 7)
  assert (summary["lost"], summary["rejected"]) == (7, 0)
  assert len(fake.asked) == 5 * 5  # then it counts as down
  causes = [cause for (cause,) in summary["unsound"].values()]
  assert sum("endpoint_down" in cause for cause in causes) == 2
  assert list_tasks(tmp_path) == []
  fake.always.clear()
  assert carried_out(fake, tmp_path, 1)["admitted"] == 1


def test_a_wrong_key_or_model_ends_the_run_and_shows_no_key(fake, tmp_path, quick):
  fake.always["idea"] = (401, {}, f"Incorrect API key provided: {KEY}")
  with pytest.raises(UserError, match="refuses the key") as error:
    carried_out(fake, tmp_path / "a", 3, api_key=KEY)
  assert KEY not in str(error.value)
  fake.always["idea"] = (404, {}, "no such model")
  with pytest.raises(UserError, match="correct --endpoint or"):
    carried_out(fake, tmp_path / "b")


def test_a_refused_request_is_lost_at_once_and_the_solvers_ends_its_attempt(
    fake, tmp_path, quick, sound, monkeypatch
):
  fake.script["idea"] = [(400, {}, "unknown parameter")]
  summary = carried_out(fake, tmp_path / "a")
  assert summary["lost"] == 1 and len(fake.asked) == 1
  assert summary["stages"]["idea"]["failed"] == {"http_400": 1}
  monkeypatch.setattr(pipeline, "ROUNDS", 0)
  fake.script["solve"] = [None, (400, {}, "maximum context length is 10")]
  summary = carried_out(fake, tmp_path / "b")
  assert summary["rejected"] == 1
  ((cause,),) = summary["unsound"].values()
  assert cause.startswith("solver: context_limit")


@pytest.mark.parametrize(
    ("header", "waits"),
    [("1", True), ("0.01", False), ("Thu, 01 Jan 1970 00:00:00 GMT", False),
     ("-5", False), ("nan", False), ("inf", False), ("soon", False), (None, False)],
)  # fmt: skip
def test_a_server_is_given_the_time_that_it_asks_for(fake, header, waits):
  fake.script["solve"] = [(429, {"Retry-After": header} if header else {}, "")]

  async def ask(url: str) -> float:
    async with Endpoint(settings(url), first_wait=0.01) as endpoint:
      body = {"messages": [{"role": "user", "content": "x"}]}
      await endpoint.ask(body, lambda cause: asked.append(time.monotonic()))
    return time.monotonic() - asked[0]

  asked: list[float] = []
  with serving(fake) as url:
    assert (asyncio.run(ask(url)) >= 1.0) == waits


def test_a_full_server_is_asked_more_often_than_a_broken_one(fake):
  async def ask(url: str) -> None:
    async with Endpoint(settings(url), first_wait=0.0) as endpoint:
      await endpoint.ask({"messages": [{"role": "user", "content": "x"}]}, causes.append)

  with serving(fake) as url:
    for status, tries in ((429, 10), (502, 5)):
      causes: list[str] = []
      fake.always["solve"] = (status, {}, "")
      with pytest.raises(Lost, match=f"tried {tries} times"):
        asyncio.run(ask(url))
      assert causes == [f"http_{status}"] * tries


def test_nobody_there_is_lost(tmp_path):
  async def ask() -> None:
    async with Endpoint(settings("http://127.0.0.1:1/v1"), first_wait=0.0) as endpoint:
      await endpoint.ask({}, causes.append)

  causes: list[str] = []
  with pytest.raises(Lost, match="tried 5 times"):
    asyncio.run(ask())
  assert causes == ["connection"] * 5


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--endpoint=http://x/v1"], "--endpoint is for --generator=llm"),
        (["--generator=llm", "--model=m"], "needs --endpoint"),
        (["--generator=llm", "--endpoint=http://x", "--model=m", "--workers=2"],
         "--workers is not"),
        (["--generator=llm", "--endpoint=http://x", "--model=m",
          "--api_key_env=NO_ONE"], "NO_ONE, which --api_key_env names, is not"),
    ],
)  # fmt: skip
def test_flags_are_refused_before_work(tmp_path, flags, says):
  done = subprocess.run(
      [sys.executable, "-m", "data_gen.synthesize", f"--out={tmp_path / 'o'}", *flags],
      capture_output=True, text=True, timeout=60, check=False,
  )  # fmt: skip
  assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr
  assert not (tmp_path / "o").exists()


def test_an_endpoint_is_a_url_without_secrets():
  assert checked_endpoint("http://h:8000/") == "http://h:8000/v1"
  assert checked_endpoint("https://h/v1beta/openai/") == "https://h/v1beta/openai"
  for url in ("h:8000", "ftp://h/v1", "http://", "http://h:port/v1"):
    with pytest.raises(UserError, match="must be the URL"):
      checked_endpoint(url)
  with pytest.raises(UserError, match="--api_key_env"):
    checked_endpoint(f"http://me:{KEY}@h/v1")
  assert Settings("http://h:8000/v1", "m").host == "h"
