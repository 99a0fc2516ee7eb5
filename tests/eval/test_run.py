"""eval.run against real sandboxes and a real engine address."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from clawgym_jax.contracts.files import read_lines
from tests.eval import commands, invented
from tests.eval.commands import DEADLINE, command, run
from tests.gateway import engine as fake

@pytest.fixture(scope="module")
def suite(tmp_path_factory):
  folder = tmp_path_factory.mktemp("tasks") / "suite"
  invented.make_suite(folder, 1)
  return folder


@pytest.fixture
def engine():
  with commands.engine() as made:
    yield made


def test_harnesses_without_a_model(tmp_path, suite):
  for harness, score in (("null", 0.0), ("oracle", 1.0)):
    done, summary = run(tmp_path / harness, suite, harness=harness)
    assert done.returncode == 0, done.stderr
    assert summary["mean"] == score
    assert summary["planned"] == summary["scored"] == 5
    assert summary == {
        k: v
        for k, v in json.loads((tmp_path / harness / "summary.json").read_text()).items()
        if k != "tasks"
    }
    assert len(list(read_lines(tmp_path / harness / "trajectories.jsonl"))) == 5


def test_an_engine_is_measured_and_its_tokenizer_kept(tmp_path, suite, engine):
  solve = fake.call("write", path="totals.md", content="south 7\n")
  engine.script = [solve, "done", "done", "done", "done", solve, "done"]
  done, summary = run(
      tmp_path / "sft", suite, endpoint=engine.url, concurrency=1, name="after", max_tokens=40
  )
  assert done.returncode == 0, done.stderr
  assert (summary["name"], summary["mean"]) == ("after", 0.4)
  assert summary["success"]["attempts"] == 2
  assert summary["settings"]["model"] == "fake"
  assert {b["temperature"] for b in engine.bodies} == {0.0}
  assert {b["max_tokens"] for b in engine.bodies} == {40}
  assert (tmp_path / "sft" / "tokenizer" / "tokenizer.json").is_file()

  page = tmp_path / "report.html"
  report = subprocess.run(
      [sys.executable, "-m", "eval.report", f"--runs=sft={tmp_path / 'sft'}", f"--out={page}"],
      capture_output=True, text=True, timeout=DEADLINE,
  )
  assert report.returncode == 0, report.stderr
  assert "totals.md" in page.read_text()
  view = subprocess.run(
      [sys.executable, "-m", "eval.view", f"--run={tmp_path / 'sft'}",
       f"--out={tmp_path / 'view.html'}"],
      capture_output=True, text=True, timeout=DEADLINE,
  )
  assert view.returncode == 0, view.stderr


def test_killed_and_resumed_attempts_are_made_once(tmp_path, suite, engine):
  engine.delay = 0.7
  out = tmp_path / "run"
  flags = dict(endpoint=engine.url, concurrency=1)
  first = subprocess.Popen(command(out, suite, **flags), stderr=subprocess.DEVNULL)
  end = time.monotonic() + DEADLINE
  while len(engine.prompts) < 2 and time.monotonic() < end:
    time.sleep(0.02)
  os.kill(first.pid, signal.SIGKILL)
  first.wait(10)
  assert not (out / "summary.json").exists()
  done, summary = run(out, suite, **flags)
  assert done.returncode == 0, done.stderr
  assert summary["planned"] == summary["scored"] == 5
  assert len(engine.prompts) <= 6  # what was done before is not done again
  records = list(read_lines(out / "trajectories.jsonl"))
  assert len({r["task_id"] for r in records}) == len(records) == 5
  asked = len(engine.prompts)
  again, summary_again = run(out, suite, **flags)
  assert again.returncode == 0 and summary_again == summary
  assert len(engine.prompts) == asked


def test_another_suite_or_model_is_not_mixed_in(tmp_path, suite, engine):
  out = tmp_path / "run"
  assert run(out, suite, endpoint=engine.url)[0].returncode == 0
  other = tmp_path / "other"
  invented.make_suite(other, 2)
  done, _ = run(out, other, endpoint=engine.url)
  assert done.returncode == 1 and "suite (was" in done.stderr
  engine.weights = "another checkpoint of that name"
  done, _ = run(out, suite, endpoint=engine.url)
  assert done.returncode == 1 and "weights (was" in done.stderr
  engine.weights = json.loads((out / "suite.json").read_text())["weights"]
  done, _ = run(out, suite, endpoint=engine.url, temperature=0.5)
  assert done.returncode == 1 and "temperature (was 0.0, is 0.5)" in done.stderr


@pytest.mark.parametrize("flags,message", [
    ({"harness": "claw"}, "give --endpoint=URL"),
    ({"harness": "clow"}, "did you mean 'claw'"),
    ({"endpoint": "localhost", "harness": "claw"}, "is no address"),
    ({"endpoint": "http://127.0.0.1:1", "harness": "claw"}, "no answer from --endpoint"),
    ({"endpoint": "http://127.0.0.1:1", "samples": 3}, "the same attempt again"),
])
def test_flags_are_checked_before_work_starts(tmp_path, suite, flags, message):
  done, _ = run(tmp_path / "run", suite, **flags)
  assert done.returncode == 1
  assert message in done.stderr and "Traceback" not in done.stderr
  assert not (tmp_path / "run").exists()
