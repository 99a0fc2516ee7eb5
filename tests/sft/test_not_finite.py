"""A lost or exploding loss ends the run, changes no weight, and has a sample named."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

from clawgym_jax.configs import tiny_sft
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import read_lines
from clawgym_jax.sft import train
from clawgym_jax.sft.guard import Guard
from clawgym_jax.sft.scores import supervised_loss
from tests.sft.test_run import write_chats


def test_the_sample_that_has_no_loss_is_named(tmp_path, monkeypatch):
  chats = write_chats(tmp_path / "chats.jsonl", 24)
  said = "It is ~."  # of one chat alone, in place of what it says
  lines = chats.read_text().splitlines()
  chat = json.loads(lines[5])
  chat["messages"][2]["content"] = said
  lines[5] = json.dumps(chat)
  chats.write_text("\n".join(lines))
  seen = {}

  def lost(model, batch, z_loss):
    """NaN where a token of that chat is trained."""
    loss, sums = supervised_loss(model, batch)
    marked = (batch["targets"] == seen["token"]) & (batch["weight"] > 0)
    bad = jnp.where(marked, jnp.nan, 0.0).sum()
    return loss + bad, sums | {"loss": loss + bad}

  load = train.corpora.load

  def marked(*arguments):
    """A token that no other chat has stands for what breaks."""
    corpus = load(*arguments)
    others = [s.tokens for i, s in enumerate(corpus.sequences) if i != 5]
    own = np.setdiff1d(corpus.sequences[5].tokens, np.concatenate(others))
    seen["token"] = own[0]
    return corpus

  monkeypatch.setattr(train, "supervised_loss", lost)
  monkeypatch.setattr(train.corpora, "load", marked)
  config = tiny_sft.get_config()
  data = dataclasses.replace(  # all rows there are
      config.data, chats=str(chats), row_length=256, batch_rows=3
  )
  config = dataclasses.replace(config, data=data, out=str(tmp_path / "out"), epochs=3)
  with pytest.raises(UserError, match="chats.jsonl line 6: loss nan") as error:
    train.train(config)
  (line,) = read_lines(tmp_path / "out" / "metrics.jsonl")
  assert line["loss"] is None and line["entropy"] > 0
  name = "bad_step_1"
  assert name in str(error.value) and said in str(error.value)
  found = json.loads((tmp_path / "out" / f"{name}.json").read_text())
  worst, *others = found["rows"]
  assert worst["loss"] == "nan" and all(row["loss"] > 0 for row in others)
  lost = [t for t in worst["trajectories"] if t["loss"] == "nan"]
  assert [t["sample"] for t in lost] == [f"{chats} line 6"]
  batch = np.load(tmp_path / "out" / f"{name}.npz")
  assert (batch["tokens"][worst["row"]] == seen["token"]).any()


def test_a_spike_is_one_against_the_steps_before():
  guard = Guard(10.0, [])
  assert all(guard.cause(0.2, 1.0) is None for _ in range(20))
  assert guard.limit == 10.0  # of one nat, for the median is less
  assert "10 is the limit" in guard.cause(11.0, 1.0)
  assert guard.limit == 10.0  # it is none of the steps before
  assert "norm is inf" in guard.cause(0.2, float("inf"))
  high = Guard(10.0, [3.0] * 8)
  assert high.cause(29.0, 1.0) is None and high.cause(31.0, 1.0)
  assert Guard(0.0, [3.0] * 8).cause(1e9, 1.0) is None
  assert Guard(10.0, [3.0] * 7).cause(1e9, 1.0) is None
