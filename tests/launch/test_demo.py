"""The demo keeps what it finished, refuses what is not its own, and runs whole."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clawgym_jax.configs.base import RlConfig, SftConfig
from clawgym_jax.configs.command import load
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_json
from launch import children
from launch.demo import stages as demo
from tests.conftest import ROOT


def test_another_run_is_never_mixed_in(tmp_path):
  out = tmp_path / "demo"
  for _ in range(2):
    with demo.Demo(demo.TINY, out).claimed():
      pass
  with pytest.raises(UserError, match="other settings.*DEMO_DIR"):
    with demo.Demo(demo.SMOLLM2, out).claimed():
      pass
  (tmp_path / "mine").mkdir()
  (tmp_path / "mine" / "thesis.tex").touch()
  with pytest.raises(UserError, match="holds other files"):
    with demo.Demo(demo.TINY, tmp_path / "mine").claimed():
      pass
  assert os.listdir(tmp_path / "mine") == ["thesis.tex"]


def test_a_second_demo_in_the_same_folder_waits_its_turn(tmp_path):
  with demo.Demo(demo.TINY, tmp_path / "demo").claimed():
    with pytest.raises(UserError, match="another demo is writing"):
      with demo.Demo(demo.TINY, tmp_path / "demo").claimed():
        pass


def test_too_little_disk_is_said_before_any_work(tmp_path, monkeypatch):
  monkeypatch.setattr(
      demo.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 8, 1 << 30)
  )
  with pytest.raises(UserError, match="needs 8 GiB of disk.*has 1.0"):
    demo.Demo(demo.TINY, tmp_path / "demo").run()
  assert not (tmp_path / "demo" / "settings.json").exists()


def test_every_stage_gives_its_program_flags_that_it_knows(tmp_path, monkeypatch):
  """A renamed flag breaks here, not after twenty minutes of a demo."""
  out, commands = tmp_path / "demo", []

  def record(module, flags, log, needs=None):
    commands.append((module, flags))
    if module == "data_gen.synthesize":
      for index in range(flags["num_tasks"]):
        write_json(Path(flags["out"]) / str(index) / "task.json", {})
    elif module == "clawgym_jax.serve.choose_precision":
      write_json(Path(flags["out"]), {"compute_dtype": "float32"})
    elif module == "eval.run":
      write_json(
          Path(flags["out"]) / "summary.json",
          {"mean": None, "interval": None, "planned": 1, "scored": 0, "truncated": 0, "unscored": 0},
      )

  @contextlib.contextmanager
  def serve(module, flags, ready, log):
    commands.append((module, {**flags, "ready_file": ready}))
    yield children.Server("http://127.0.0.1:1", module, None, log)

  monkeypatch.setattr(demo.children, "run", record)
  monkeypatch.setattr(demo.children, "serving", serve)
  demo.Demo(demo.TINY, out).run()
  seen = set()
  for module, flags in commands:
    kind = {"clawgym_jax.sft": SftConfig, "clawgym_jax.rl": RlConfig}.get(module)
    if kind is not None:
      items = [
          f"{k.removeprefix('config.')}={v}" for k, v in flags.items() if k != "config"
      ]
      load(flags["config"], kind, items)
    elif (module, *flags) not in seen:
      seen.add((module, *flags))
      options = [f"--{name}={value}" for name, value in flags.items()]
      done = subprocess.run(
          [sys.executable, "-m", module, *options, "--only_check_args"],
          cwd=ROOT, capture_output=True, text=True,
      )  # fmt: skip
      assert done.returncode == 0, done.stderr
  assert len(seen) >= 8


def test_finished_stages_are_not_done_again(tmp_path):
  run = demo.Demo(demo.TINY, tmp_path / "demo")
  done = []
  run.stages = [
      demo.Stage(name, name, lambda name=name: done.append(name)) for name in "abc"
  ]
  run.report = lambda: {}

  def stop():
    raise UserError("the disk is full")

  run.stages[1] = demo.Stage("b", "b", stop)
  with pytest.raises(UserError):
    run.run()
  assert done == ["a"]
  run.stages[1] = demo.Stage("b", "b", lambda: done.append("b"))
  run.run()
  run.run()
  assert done == ["a", "b", "c"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_whole_road_survives_interruptions(tmp_path):
  """Ctrl-C and kill -9 in the middle; the same command ends with a report."""
  out = tmp_path / "demo"
  command = [sys.executable, "-m", "launch.demo", "--model=tiny", f"--out={out}", "--json"]
  for marker, number in (("teacher", signal.SIGINT), ("eval_base", signal.SIGKILL)):
    before = out / "stages" / f"{marker}.json"
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    while not before.exists():
      assert process.poll() is None
      time.sleep(0.2)
    time.sleep(3)
    process.send_signal(number)
    assert process.wait(120) == (130 if number == signal.SIGINT else -number)
  done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=1500)
  assert done.returncode == 0
  summary = json.loads(done.stdout.splitlines()[-1])
  assert summary["scores"]["null"]["mean"] == 0.0
  assert all(s["unscored"] == 0 for s in summary["scores"].values())
  assert "<html" in (out / "report.html").read_text()[:2000]
  torch = pytest.importorskip("torch")
  transformers = pytest.importorskip("transformers")
  model = transformers.AutoModelForCausalLM.from_pretrained(out / "export")
  tokenizer = transformers.AutoTokenizer.from_pretrained(out / "export")
  ids = tokenizer.apply_chat_template(
      [{"role": "user", "content": "hello"}], add_generation_prompt=True, return_dict=False
  )
  assert model(torch.tensor([ids])).logits.shape[-1] == len(tokenizer)
