"""A loss that is not a number: written as None, skipped, and the end after three."""

import dataclasses

import jax.numpy as jnp
import pytest

from clawgym_jax.configs import tiny_sft
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import read_lines
from clawgym_jax.sft import train
from clawgym_jax.sft.scores import supervised_loss
from tests.sft.test_run import write_chats


def test_three_in_a_row_end_the_run(tmp_path, monkeypatch):
  def lost(model, batch):
    loss, sums = supervised_loss(model, batch)
    return loss * jnp.nan, sums | {"loss": loss * jnp.nan}

  monkeypatch.setattr(train, "supervised_loss", lost)
  config = tiny_sft.get_config()
  data = dataclasses.replace(
      config.data, chats=str(write_chats(tmp_path / "chats.jsonl")), row_length=128
  )
  config = dataclasses.replace(
      config, data=data, out=str(tmp_path / "out"), epochs=6
  )
  with pytest.raises(UserError, match="3 updates in a row"):
    train.train(config)
  lines = list(read_lines(tmp_path / "out" / "metrics.jsonl"))
  assert [line["step"] for line in lines] == [1, 2, 3]
  assert all(line["loss"] is line["gradient_norm"] is None for line in lines)
  assert all(line["entropy"] > 0 for line in lines)
