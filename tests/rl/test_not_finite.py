"""A loss that is not a number: written as None, skipped, and the end after three.

Engine and rollouts are replaced by groups made by hand: only the trainer is real.
"""

import contextlib
import dataclasses
import types

import jax.numpy as jnp
import pytest

from clawgym_jax.configs import tiny_rl
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import read_lines
from clawgym_jax.contracts.task import Reference, Task, save_task
from clawgym_jax.rl import learner, train
from tests.rl.groups import group, step, trajectory


class Idle(contextlib.AbstractContextManager):
  """Takes the place of both the engine and the rollouts."""

  recompiles = 0
  stats = types.SimpleNamespace(sampled_tokens=0)
  pool = types.SimpleNamespace(set_policy_version=lambda version: None)

  def __init__(self, *args, **kw):
    pass

  def __exit__(self, *error):
    return None

  def collect(self, number, tasks, version, report):
    turns = [step("a", [1, 2, 3], [4, 5], version=version)]
    return [group(*(trajectory(f"t{i}", turns, float(i)) for i in range(2)))]

  def update_weights(self, params, version):
    pass

  def consumed(self, groups):
    pass


def test_three_in_a_row_end_the_run(tmp_path, monkeypatch):
  def lost(*args, **kw):
    total, sums = clip(*args, **kw)
    return total * jnp.nan, sums

  clip = learner.ppo_clip
  monkeypatch.setattr(learner, "ppo_clip", lost)
  monkeypatch.setattr(train, "_engine", Idle)
  monkeypatch.setattr(train, "Rollouts", Idle)
  save_task(
      tmp_path / "tasks" / "one",
      Task(
          id="one", instruction="Say 1.", family="say", split="train",
          category="test", operations=("say",),
      ),
      workspace={}, checks={"check.py": b""}, turns=[Reference([], "ok")],
  )  # fmt: skip
  config = tiny_rl.get_config()
  rollouts = dataclasses.replace(
      config.rollouts, tasks=str(tmp_path / "tasks"), max_len=64
  )
  config = dataclasses.replace(
      config,
      rollouts=rollouts,
      saving=dataclasses.replace(config.saving, every_steps=10),
      out=str(tmp_path / "out"),
      row_length=64,
      steps=5,
  )
  with pytest.raises(UserError, match="3 updates in a row"):
    train.train(config)
  lines = list(read_lines(tmp_path / "out" / "metrics.jsonl"))
  assert [line["step"] for line in lines] == [1, 2, 3]
  assert all(line["loss"] is line["gradient_norm"] is None for line in lines)
  assert all(line["reward_mean"] == 0.5 for line in lines)
