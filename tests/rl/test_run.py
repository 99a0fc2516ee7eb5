"""The whole loop with real sandboxes: roll out, update, hand over, be killed, go on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clawgym_jax.checkpoints import hf
from clawgym_jax.contracts.files import read_lines
from clawgym_jax.contracts.task import Reference, SolutionCall, Task, save_task

# Any answer has a reward, and two different ones rarely the same.
CHECK = """
def grade(workspace, final_message, transcript):
  return {"length": (len(final_message) % 11) / 10}
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
  folder = tmp_path_factory.mktemp("tasks")
  for number in range(3):
    save_task(
        folder / f"task-{number}",
        Task(
            id=f"task-{number}", instruction=f"Say {number}.", family="say",
            split="train", category="test", operations=("say",),
        ),
        workspace={"note.txt": b"hello"},
        checks={"check.py": CHECK.encode()},
        turns=[Reference([SolutionCall("read", {"path": "note.txt"})], "ok")],
    )  # fmt: skip
  return folder


def command(tasks, out, *extra):
  return [
      sys.executable, "-m", "clawgym_jax.rl", "--config=tiny_rl", "--json",
      f"--config.rollouts.tasks={tasks}", f"--config.out={out}",
      "--config.rollouts.max_tokens=12", *extra,
  ]  # fmt: skip


def run(*args, timeout=280):
  return subprocess.run(
      command(*args), capture_output=True, text=True, timeout=timeout
  )


@pytest.mark.parametrize(
    "extra, words",
    [
        (["--config.rollouts.tasks="], "rollouts.tasks"),
        (["--config.rollouts.tasks=nowhere"], "nowhere holds no tasks"),
        (["--config.rollouts.staleness=1"], "staleness"),
        (["--config.row_length=256"], "row_length"),
        (["--config.objective.advantage=gae"], "dr_grpo"),
    ],
)
def test_what_is_wrong_is_said_before_any_work(tasks, tmp_path, extra, words):
  refused = run(tasks, tmp_path / "out", *extra)
  assert refused.returncode == 1
  assert words in refused.stderr and "Traceback" not in refused.stderr
  assert not (tmp_path / "out").exists()


def test_two_steps_with_real_sandboxes(tasks, tmp_path):
  out = tmp_path / "out"
  result = run(tasks, out)
  assert result.returncode == 0, result.stderr
  summary = json.loads(result.stdout.splitlines()[-1])
  lines = list(read_lines(out / "metrics.jsonl"))
  assert summary["steps"] == len(lines) == 2
  for line in lines:
    assert line["groups"] == 2 and line["trajectories"] == 4
    assert line["engine_recompiles"] == 0
    assert line["trained_tokens"] + sum(line["dropped_tokens"].values()) == line["sampled_tokens"]
    assert line["seconds_rollout"] > 0 and line["seconds_sync"] >= 0
  learned = [line for line in lines if line["trained_tokens"]]
  assert learned
  for line in learned:
    assert line["mismatch_max"] < 1e-3 and abs(line["ratio"] - 1) < 1e-5
  hf.load(out / "hf")
  workers = (out / "rollout-0.log").read_text()
  assert "Traceback" not in workers


@pytest.mark.slow
def test_rollouts_use_the_backend_that_is_asked_for(tasks, tmp_path):
  refused = run(tasks, tmp_path / "out", "--config.rollouts.backend=nowhere")
  assert refused.returncode == 1
  assert "there is no backend 'nowhere'" in refused.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_stopped_and_continued_leaves_no_worker(tasks, tmp_path, number, status):
  out = tmp_path / "out"
  process = subprocess.Popen(
      command(tasks, out, "--config.steps=3"),
      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
  )  # fmt: skip
  try:
    deadline = time.monotonic() + 200
    while not list(read_lines(out / "metrics.jsonl")):
      assert process.poll() is None and time.monotonic() < deadline
      time.sleep(0.1)
    while not (out / "checkpoints" / "1" / "manifest.json").exists():
      assert process.poll() is None and time.monotonic() < deadline
      time.sleep(0.02)
  finally:
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
  assert process.returncode == status and "Traceback" not in errors
  deadline = time.monotonic() + 30
  while _alive(out) and time.monotonic() < deadline:
    time.sleep(0.1)
  assert not _alive(out)
  result = run(tasks, out, "--config.steps=3")
  assert result.returncode == 0, result.stderr
  assert "continuing after step" in result.stderr
  assert [line["step"] for line in read_lines(out / "metrics.jsonl")] == [1, 2, 3]
  assert (out / "pool-1.db").exists()
  assert not _alive(out)


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_run_with_its_last_words(tasks, tmp_path):
  result = run(tasks, tmp_path / "out", "--config.rollouts.harness=nonsense")
  assert result.returncode == 1
  assert "rollout worker ended with status" in result.stderr
  assert "nonsense" in result.stderr and "Traceback" not in result.stderr


def _alive(out: Path) -> list[int]:
  """Processes that name the run's folder, such as its rollout worker."""
  found = []
  for entry in Path("/proc").iterdir():
    if entry.name.isdigit() and int(entry.name) != os.getpid():
      try:
        words = (entry / "cmdline").read_bytes()
      except OSError:
        continue
      if str(out).encode() in words and b"sandbox.rollout" in words:
        found.append(int(entry.name))
  return found
