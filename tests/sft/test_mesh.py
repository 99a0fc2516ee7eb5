"""Eight devices give the losses of one, and compile nothing after the first step."""

import json
import signal
import subprocess

import pytest

from tests.eight_devices import environment
from tests.sft.test_run import command, losses, stopped, write_chats

EXTRA = ["--config.data.batch_rows=8", "--config.epochs=2"]


def run(chats, out, devices, fsdp):
  result = subprocess.run(
      command(chats, out, *EXTRA, f"--config.mesh.fsdp={fsdp}"),
      capture_output=True, text=True, timeout=280, env=environment(devices),
  )  # fmt: skip
  assert result.returncode == 0, result.stderr


def test_eight_devices_equal_one(tmp_path):
  chats = write_chats(tmp_path / "chats.jsonl")
  for devices, fsdp in ((1, 1), (8, 2)):
    run(chats, tmp_path / str(devices), devices, fsdp)
  one, eight = losses(tmp_path / "1"), losses(tmp_path / "8")
  assert eight == pytest.approx(one, rel=1e-4)
  lines = (tmp_path / "8" / "metrics.jsonl").read_text().splitlines()
  compiles = [json.loads(line)["compiles"] for line in lines]
  assert len(compiles) > 2 and not any(compiles[2:])


@pytest.mark.slow
def test_a_run_goes_on_over_other_devices(tmp_path):
  chats = write_chats(tmp_path / "chats.jsonl")
  run(chats, tmp_path / "one", 1, 1)
  moved = tmp_path / "moved"
  assert stopped(signal.SIGTERM, chats, moved, *EXTRA) == 143
  assert 3 <= len(losses(moved)) < len(losses(tmp_path / "one"))
  run(chats, moved, 8, 2)
  assert losses(moved) == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


def test_rows_that_the_mesh_cannot_split_are_refused(tmp_path):
  result = subprocess.run(
      command(write_chats(tmp_path / "chats.jsonl"), tmp_path / "out"),
      capture_output=True, text=True, timeout=100,
      env=environment(8),
  )  # fmt: skip
  assert result.returncode == 1
  assert "can't be split over 8 devices" in result.stderr
