"""What a run does besides: held-out chats, states that it keeps, traces, other sinks."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from clawgym_jax.checkpoints import hf
from clawgym_jax.checkpoints.orbax import Checkpoints
from clawgym_jax.configs import base, tiny_sft
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import read_lines
from clawgym_jax.data import corpus as corpora
from clawgym_jax.data.batch import collate
from clawgym_jax.data.tree import Tree
from clawgym_jax.sft import profile, train
from clawgym_jax.sft.scores import supervised_loss
from tests.sft.test_run import write_chats


def settings(tmp_path, **kw):
  config = tiny_sft.get_config()
  data = dataclasses.replace(
      config.data,
      chats=str(write_chats(tmp_path / "chats.jsonl", 24)),
      row_length=128,
  )
  return dataclasses.replace(
      config, data=data, out=str(tmp_path / "out"), epochs=6, **kw
  )


def test_a_run_with_everything(tmp_path):
  held_out = write_chats(tmp_path / "held_out.jsonl", 60)
  pytest.importorskip("tensorboardX")
  config = settings(
      tmp_path,
      evaluation=base.Evaluation(chats=str(held_out), every_steps=3),
      saving=base.Saving(every_steps=6, keep=1, keep_best=1, keep_every=12),
      optimizer=base.Optimizer(peak_lr=3e-3, schedule="wsd", end_fraction=0.0),
      logging=base.Logging(tensorboard=True),
      z_loss=1e-4,
  )
  summary = train.train(config, profile_steps="3-4")
  out = tmp_path / "out"
  lines = list(read_lines(out / "metrics.jsonl"))
  evaluated = {line["step"]: line["eval_loss"] for line in lines if "eval_loss" in line}
  steps = summary["steps"]
  assert set(evaluated) == {s for s in range(1, steps + 1) if s % 3 == 0 or s == steps}
  assert evaluated[steps] < 0.8 * evaluated[3]
  assert summary["eval_loss"] == evaluated[steps]
  saved = [s for s in evaluated if s % 6 == 0 or s == steps]
  best = min(saved, key=evaluated.get)
  assert set(Checkpoints(out / "checkpoints").steps()) == {
      steps, best, *(s for s in saved if s % 12 == 0)
  }
  assert list((out / "profile").rglob("*.xplane.pb"))
  assert list((out / "tensorboard").iterdir())
  model, tokenizer = hf.load(out / "hf")
  corpus = corpora.load(corpora.open_sources(str(held_out)), tokenizer, config.data)
  rows = [Tree([sequence]).row(128) for sequence in corpus.sequences]
  batch = collate(rows, 64)
  loss = jax.jit(partial(supervised_loss, model))(batch)[0] / batch["weight"].sum()
  np.testing.assert_allclose(evaluated[steps], loss, rtol=1e-5)


def test_what_does_not_fit_together_is_named(tmp_path):
  keep_best = base.Saving(every_steps=4, keep_best=1)
  for words, kw in (
      ("evaluation.chats", {"saving": keep_best}),
      ("no multiple of evaluation.every_steps", {
          "saving": keep_best, "evaluation": base.Evaluation(chats="x", every_steps=3),
      }),
      ("mesh.context", {"mesh": base.Mesh(context=3)}),
      ("needs 2 devices", {"mesh": base.Mesh(data=2)}),
  ):  # fmt: skip
    with pytest.raises(UserError, match=words):
      train.train(settings(tmp_path, **kw))


@pytest.mark.parametrize("steps", ["3", "4-3", "0-2", "a-b"])
def test_steps_that_are_no_range_are_refused(steps):
  with pytest.raises(UserError, match="FIRST-LAST"):
    profile.parse(steps)
