"""A run is continued with other workers, and its losses are those of a whole one."""

import subprocess
import time

import pytest

from tests.sft.test_run import command, losses, write_chats


@pytest.mark.slow
def test_a_run_with_workers_that_is_killed_continues_without_them(tmp_path):
  chats = write_chats(tmp_path / "chats.jsonl")
  more = write_chats(tmp_path / "more.jsonl", 20)
  mixed = f"{chats}@2,{more}@1"
  common = [f"--config.data.cache={tmp_path}/cache", "--config.saving.every_steps=2"]
  whole = subprocess.run(
      command(mixed, tmp_path / "whole", *common), capture_output=True, text=True
  )
  assert whole.returncode == 0, whole.stderr
  out = tmp_path / "out"
  with_workers = command(mixed, out, *common, "--config.data.workers=2")
  process = subprocess.Popen(with_workers, stdout=subprocess.DEVNULL)
  try:
    deadline = time.monotonic() + 120
    while len(losses(out)) < 3:
      assert process.poll() is None and time.monotonic() < deadline
      time.sleep(0.02)
  finally:
    process.kill()
    process.wait()
  for workers in (0, 1):  # the second finds a finished run
    other = command(mixed, out, *common, f"--config.data.workers={workers}")
    again = subprocess.run(other, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
  assert losses(out) == losses(tmp_path / "whole")
  assert "continuing after step" in again.stderr
