"""The command: it learns, is killed and continued, and refuses what is wrong."""

import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clawgym_jax.checkpoints import hf
from clawgym_jax.checkpoints.orbax import Checkpoints
from clawgym_jax.configs import base
from clawgym_jax.configs import command as command_line
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import read_lines
from clawgym_jax.contracts.runs import only_writer
from clawgym_jax.sft import session, train

TOOLS = [{
    "type": "function",
    "function": {"name": "read", "parameters": {"properties": {"path": {}}}},
}]


def write_chats(path: Path, count: int = 48) -> Path:
  rng = random.Random(0)
  with open(path, "w") as file:
    for _ in range(count):
      a, b = rng.randrange(9), rng.randrange(9)
      messages = [
          {"role": "system", "content": "You add numbers."},
          {"role": "user", "content": f"What is {a} + {b}?"},
          {"role": "assistant", "content": f"It is {a + b}."},
      ]
      file.write(json.dumps({"messages": messages, "tools": TOOLS}) + "\n")
  return path


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
  return write_chats(tmp_path_factory.mktemp("chats") / "chats.jsonl")


def command(chats, out, *extra):
  return [
      sys.executable, "-m", "clawgym_jax.sft", "--config=tiny_sft", "--json",
      f"--config.data.chats={chats}", f"--config.out={out}",
      "--config.data.row_length=128", "--config.data.batch_rows=2",
      "--config.optimizer.peak_lr=3e-3", "--config.epochs=6",
      "--config.saving.every_steps=4", *extra,
  ]  # fmt: skip


def run(*args, **kw):
  return subprocess.run(
      command(*args), capture_output=True, text=True, timeout=280, **kw
  )


def losses(out):
  return {line["step"]: line["loss"] for line in read_lines(Path(out) / "metrics.jsonl")}


@pytest.fixture(scope="module")
def whole(chats, tmp_path_factory):
  out = tmp_path_factory.mktemp("whole")
  result = run(chats, out)
  assert result.returncode == 0, result.stderr
  return out, json.loads(result.stdout.splitlines()[-1]), result


def test_it_learns_and_hands_over_a_model(whole):
  out, summary, result = whole
  assert summary["last_loss"] < 0.8 * summary["first_loss"]
  assert summary["batches_without_loss"] == 0
  lines = list(read_lines(out / "metrics.jsonl"))
  assert [line["step"] for line in lines] == list(range(1, summary["steps"] + 1))
  assert not any(line["compiles"] for line in lines[2:])
  for key in ("learning_rate", "gradient_norm", "entropy", "data_wait_share"):
    assert all(line[key] >= 0 for line in lines)
  for key in ("tokens_per_second", "loss", "loss_by_trajectory", "flops", "mfu"):
    assert all(line[key] > 0 for line in lines)
  assert all(line["memory_bytes"] > 1 << 26 for line in lines)
  assert all(0 <= line["padding_share"] < 0.5 for line in lines)
  model, tokenizer = hf.load(out / "hf")
  assert model.config.vocab_size == tokenizer.vocab_size
  assert "48 chats" in result.stderr


def stopped(number, chats, out, *extra, when=None):
  """Starts the run and sends it a signal, after 3 steps or `when`; its status."""
  seen = len(losses(out))
  when = when or (lambda: len(losses(out)) >= seen + 3)
  process = subprocess.Popen(
      command(chats, out, *extra),
      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
  )  # fmt: skip
  try:
    deadline = time.monotonic() + 120
    while not when():
      assert process.poll() is None and time.monotonic() < deadline
      time.sleep(0.001)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
  finally:
    process.kill()
  assert seen == 0 or "continuing after step" in errors
  return process.returncode


def weights(out):
  """All bytes of the last state's arrays, the optimizer's too."""
  params, _ = Checkpoints(out / "checkpoints").open_params()
  (path,) = (out / "hf").glob("*.safetensors")
  return {n: p.read().result().tobytes() for n, p in params.items()}, path.read_bytes()


def test_stopped_again_and_again_equals_uninterrupted(chats, whole, tmp_path):
  """Ctrl-C, SIGTERM, kill -9, and kill -9 while a state is written, each continued.

  Losses and weights are those of one whole run, to the bit.
  """
  out = tmp_path / "out"
  assert stopped(signal.SIGINT, chats, out) == 130
  assert stopped(signal.SIGTERM, chats, out) == 143
  assert stopped(signal.SIGKILL, chats, out) == -9
  saves = out / "checkpoints"
  # Kill -9 may have left one that nothing seals: it is made anew, as another folder.
  before = {path.stat().st_ino for path in saves.iterdir()}

  def saving():
    """A state is on its way that no manifest seals yet."""
    with contextlib.suppress(FileNotFoundError):  # one was removed meanwhile
      new = (path for path in saves.iterdir() if path.stat().st_ino not in before)
      return any(not (path / "manifest.json").exists() for path in new)
    return False

  assert stopped(signal.SIGKILL, chats, out, when=saving) == -9
  assert not all((path / "manifest.json").exists() for path in saves.iterdir())
  assert max(losses(out)) < max(losses(whole[0]))
  result = run(chats, out)
  assert result.returncode == 0, result.stderr
  assert losses(out) == losses(whole[0])
  assert weights(out) == weights(whole[0])


def test_stopped_where_an_epoch_ends(chats, whole, tmp_path, monkeypatch):
  """N steps, two passes over the rows to the row, and the others: as all at once."""
  rows = int(re.search(r"in (\d+) rows", whole[2].stderr)[1])
  end = rows  # 2 rows a batch, so that many batches are two passes
  save = Checkpoints.save

  def ends_there(self, state):
    save(self, state)
    if state.step == end:
      raise KeyboardInterrupt

  config = command_line.load("tiny_sft", base.SftConfig, [
      item.removeprefix("--config.") for item in command(chats, tmp_path)[5:]
  ] + [f"saving.every_steps={end}"])  # fmt: skip
  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(Checkpoints, "save", ends_there)
    train.train(config)
  assert max(losses(tmp_path)) == end < max(losses(whole[0]))
  train.train(config)
  assert losses(tmp_path) == losses(whole[0])
  assert weights(tmp_path) == weights(whole[0])


def test_other_settings_or_data_are_refused(chats, whole, tmp_path):
  out = whole[0]
  refused = run(chats, out, "--config.optimizer.peak_lr=1e-3")
  assert refused.returncode == 1
  assert "optimizer.peak_lr (was 0.003, is 0.001)" in refused.stderr
  other = write_chats(tmp_path / "other.jsonl", 7)
  refused = run(other, out)
  assert refused.returncode == 1 and "chats (was" in refused.stderr


def test_two_runs_at_once_in_one_folder_are_refused(chats, whole, monkeypatch):
  monkeypatch.setattr(session, "_SAVING_SECONDS", 0.0)
  settings = base.SftConfig(out=str(whole[0]))
  with only_writer(whole[0], "training run"):
    with pytest.raises(UserError, match="another training run is writing"):
      with session.claim_folder(settings, {}):
        pass


def test_a_finished_run_is_not_run_again(chats, whole):
  before = (whole[0] / "metrics.jsonl").read_bytes()
  again = run(chats, whole[0])
  assert again.returncode == 0, again.stderr
  assert (whole[0] / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "extra, words",
    [
        (["--config.data.chats=nowhere.jsonl"], "nowhere.jsonl"),
        (["--config.micro_batches=3"], "micro_batches"),
        (["--config.model.source=nowhere"], "nowhere"),
        (["--config.data.row_length=16"], "row length"),
        (["--config.out="], "--config.out"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(chats, tmp_path, extra, words):
  refused = run(chats, tmp_path / "out", *extra)
  assert refused.returncode == 1
  assert words in refused.stderr and "Traceback" not in refused.stderr
