"""Configurations refuse what they don't know, by name."""

import subprocess
import sys
from pathlib import Path

import pytest

from clawgym_jax.configs import base, command
from clawgym_jax.contracts.errors import UserError

FOLDER = Path(command.__file__).parent


NAMES = [path.stem for path in FOLDER.glob("*_*.py") if path.stem != "__init__"]


@pytest.mark.parametrize("name", NAMES)
def test_every_config_loads_and_is_in_range(name):
  kind = base.RlConfig if name.endswith("rl") else base.SftConfig
  by_path = command.load(str(FOLDER / f"{name}.py"), kind, [])
  assert by_path == command.load(name, kind, [])


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("64k")])
def test_recipes_are_clawgyms(name):
  """128 trajectories of 18.67K tokens a step, 1e-5, 3 epochs, saved every 80 steps."""
  config = command.load(name, base.SftConfig, [])
  rows = 128 * 18_670 / config.data.row_length
  assert rows <= config.data.batch_rows <= 1.15 * rows
  assert config.optimizer.peak_lr == 1e-5 and config.epochs == 3
  assert config.saving.every_steps == 80
  micro = config.data.batch_rows / config.micro_batches
  assert micro == config.mesh.fsdp and micro * config.mesh.context == 32


def test_values_are_read_as_their_field_type():
  config = base.override(
      base.SftConfig(),
      ["optimizer.peak_lr=1e-3", "data.batch_rows=8", "data.share_prefixes=false", "out=x"],
  )
  assert config.optimizer.peak_lr == 1e-3
  assert config.data.batch_rows == 8
  assert config.data.share_prefixes is False
  assert config.out == "x"


@pytest.mark.parametrize(
    "item, words",
    [
        ("optimizer.peek_lr=1", ["optimizer.peek_lr", "optimizer.peak_lr"]),
        ("optimizer=1", ["'optimizer'", "nearest"]),
        ("optimizer.peak_lr=2.0", ["optimizer.peak_lr", "[0.0, 1.0]"]),
        ("optimizer.peak_lr=nan", ["optimizer.peak_lr"]),
        ("data.batch_rows=1.5", ["data.batch_rows", "int"]),
        ("data.share_prefixes=maybe", ["data.share_prefixes", "bool"]),
        ("model.compute_dtype=float16", ["model.compute_dtype", "bfloat16"]),
        ("out", ["out", "no value"]),
    ],
)
def test_wrong_overrides_name_the_key(item, words):
  with pytest.raises(UserError) as error:
    base.override(base.SftConfig(), [item])
  for word in words:
    assert word in str(error.value)


def test_a_config_of_another_kind_is_refused():
  with pytest.raises(UserError, match="RlConfig"):
    command.load("tiny_rl", base.SftConfig, [])


def test_the_command_line_reports_an_unknown_key():
  code = (
      "from clawgym_jax.configs import base, command;"
      "command.run(lambda config: None, base.SftConfig)"
  )
  run = lambda *args: subprocess.run(
      [sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60
  )
  refused = run("--config=tiny_sft", "--config.sed=3")
  assert refused.returncode == 1
  assert "'sed'" in refused.stderr and "'seed'" in refused.stderr
  assert "Traceback" not in refused.stderr
  assert run("--config=tiny_sft", "--config.seed=3").returncode == 0
  assert "--config.optimizer.peak_lr" in run("--help").stdout
