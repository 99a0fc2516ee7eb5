"""Where a run's metrics go: the file, TensorBoard's events, W&B, the terminal."""

import importlib.util
import json
import subprocess
import sys
import time

import pytest

from clawgym_jax.configs.base import Logging
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import read_lines
from clawgym_jax.sft import session
from clawgym_jax.sft.display import Display

LINE = {
    "step": 3, "loss": 1.25, "eval_loss": 1.5, "tokens_per_second": 812.4, "mfu": 0.613,
    "learning_rate": 1e-5, "data_wait_share": 0.004, "memory_bytes": 3 << 30,
    "gradient_norm": None, "dropped_tokens": {},
}  # fmt: skip


def test_tensorboard_has_every_number(tmp_path):
  pytest.importorskip("tensorboardX")
  from tensorboardX.proto.event_pb2 import Event

  with session.loggers(Logging(tensorboard=True), tmp_path, {}) as others:
    metrics = session.Metrics(tmp_path / "metrics.jsonl", done=0, others=others)
    metrics.write(LINE)
  (file,) = (tmp_path / "tensorboard").iterdir()
  data, found = file.read_bytes(), {}
  while data:  # length, its checksum, event, its checksum
    size = int.from_bytes(data[:8], "little")
    for value in Event.FromString(data[12 : 12 + size]).summary.value:
      found[value.tag] = value.simple_value
    data = data[16 + size :]
  wanted = {k: v for k, v in LINE.items() if isinstance(v, int | float) and k != "step"}
  assert found == pytest.approx(wanted)


@pytest.mark.timeout(200)
def test_wandb_keeps_a_run_here(tmp_path, monkeypatch):
  pytest.importorskip("wandb")
  monkeypatch.setenv("WANDB_MODE", "offline")
  monkeypatch.setenv("WANDB_SILENT", "true")
  with session.loggers(Logging(wandb="agents"), tmp_path, {"seed": 7}) as others:
    session.Metrics(tmp_path / "metrics.jsonl", done=0, others=others).write(LINE)
  (file,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
  deadline = time.monotonic() + 60
  while b"tokens_per_second" not in file.read_bytes():  # its own process writes it
    assert time.monotonic() < deadline
    time.sleep(0.05)
  assert b"gradient_norm" not in file.read_bytes()


@pytest.mark.parametrize(
    "config, module",
    [(Logging(tensorboard=True), "tensorboardX"), (Logging(wandb="agents"), "wandb")],
)
def test_what_is_not_installed_is_named(tmp_path, monkeypatch, config, module):
  monkeypatch.setitem(sys.modules, module, None)
  with pytest.raises(UserError, match=rf"needs {module}.*pip install 'clawgym-jax\["):
    with session.loggers(config, tmp_path, {}):
      pass


def test_none_is_imported_unasked(tmp_path):
  with session.loggers(Logging(), tmp_path, {}) as others:
    assert others == []
  program = "import sys, clawgym_jax.sft.train as _; print(*sys.modules)"
  loaded = subprocess.run(
      [sys.executable, "-c", program], capture_output=True, text=True, check=True
  ).stdout.split()
  assert "rich" in loaded and not {"tensorboardX", "wandb", "torch"} & set(loaded)
  assert importlib.util.find_spec("rich")


def test_a_log_has_lines_and_a_terminal_a_bar(capsys, monkeypatch):
  with Display(10, done=2) as display:
    display.step(LINE, 10)
    display.step(LINE | {"step": 4}, 10)  # within 15 seconds
    display.step(LINE | {"step": 10}, 10)
  first, last = capsys.readouterr().err.splitlines()
  assert first.startswith("sft 3/10, 00:")
  assert last.startswith("sft 10/10, 00:00:00 left")
  for words in ("loss 1.2500", "812 tokens/s", "MFU 61.3 %", "eval 1.5000", "3.0 GiB"):
    assert words in first
  monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
  monkeypatch.setenv("TERM", "xterm")
  monkeypatch.setenv("COLUMNS", "200")
  with Display(10, done=2) as display:
    display.step(LINE | {"mfu": None}, 10)
  shown = capsys.readouterr().err
  assert "3/10" in shown and "812 tokens/s" in shown and "MFU" not in shown


def test_the_file_holds_none_for_what_is_not_finite(tmp_path):
  metrics = session.Metrics(tmp_path / "metrics.jsonl", done=0)
  metrics.write(LINE | {"loss": float("nan"), "step": 1})
  metrics.write(LINE | {"step": 2})
  again = session.Metrics(tmp_path / "metrics.jsonl", done=1)
  assert [line["loss"] for line in again.lines] == [None]
  assert json.loads((tmp_path / "metrics.jsonl").read_text())["step"] == 1
  assert len(list(read_lines(tmp_path / "metrics.jsonl"))) == 1
