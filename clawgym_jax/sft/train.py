"""The supervised loop: batches to updates, saved so that it can stop anywhere.

A step takes a batch, sums gradients over its micro-batches and updates. A save
at step n holds weights, optimizer, the data iterator's position and how many
steps the run is to have; the same command continues from the last whole save
with the same batches. OUT holds run.json, metrics.jsonl, checkpoints/ and, at
the end, hf/, a Hugging Face folder, and adapter/ where adapters were trained.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from clawgym_jax import cli
from clawgym_jax.checkpoints import orbax
from clawgym_jax.configs.base import SftConfig
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.data import corpus as corpora
from clawgym_jax.data.pipeline import Batches
from clawgym_jax.parallel.compiles import CompileCount
from clawgym_jax.parallel.host import release_memory
from clawgym_jax.sft.budget import Budget
from clawgym_jax.sft.optimizer import learning_rate
from clawgym_jax.sft.scores import supervised_loss
from clawgym_jax.sft.session import Metrics, StopSignals, claim_folder, shown
from clawgym_jax.sft.setup import described, hand_over, load_model, mesh_of, place
from clawgym_jax.sft.updates import Updates, Watch


def train(config: SftConfig) -> dict[str, Any]:
  """Runs or continues the run of `config`; returns its summary.

  Raises KeyboardInterrupt after Ctrl-C, SystemExit(143) after SIGTERM, both
  with the state saved; `UserError` for what the caller can mend.
  """
  micro_rows = _check(config)
  sources = corpora.open_sources(config.data.chats)
  compiles = CompileCount()
  with contextlib.ExitStack() as stack:
    out = stack.enter_context(claim_folder(config, {"chats": sources.digest}))
    mesh = stack.enter_context(mesh_of(config.mesh, micro_rows))
    model, tokenizer = load_model(config.model, sources.texts, config.seed)
    corpus = corpora.load(sources, tokenizer, config.data)
    batches = Batches.of(
        corpus,
        config.data,
        seed=config.seed,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
    )
    stop = stack.enter_context(StopSignals())  # until here nothing is lost by one
    graphdef, params = nnx.split(model, nnx.Param)
    updates = Updates(graphdef, params, supervised_loss, config.optimizer, mesh)
    optimizer = updates.initial(params)
    saves = orbax.Checkpoints(out / "checkpoints", keep=config.saving.keep)
    budget = Budget(batches.steps(config.epochs), config.max_seconds)
    done = 0
    restored = saves.restore(
        orbax.TrainState(step=0, params=params, optimizer=optimizer)
    )
    if restored is not None:
      params, optimizer = restored.params, restored.optimizer
      done = restored.step
      batches.state = restored.data["batches"]
      budget.settle(restored.data["steps"])
    metrics = Metrics(out / "metrics.jsonl", done=done)
    watch = Watch()
    print(_opening(corpus, batches, budget, done), file=sys.stderr)

    def save() -> None:
      release_memory()
      saves.save(
          orbax.TrainState(
              step=done,
              params=params,
              optimizer=optimizer,
              data={"batches": batches.state, "steps": budget.settled},
              config=described(model),
          )
      )
      release_memory()

    with cli.progress(budget.steps, "sft", done=done, unit="step") as bar:
      while done < budget.steps:
        started = time.monotonic()
        compiled = compiles.count
        batch = next(batches)
        weight = float(batch["weight"].sum())
        sums = None
        for part in _split(batch, config.micro_batches):
          sums = updates.accumulate(sums, params, place(part, mesh), weight)
        rate = learning_rate(config.optimizer, done, budget.steps)
        params, optimizer, norm = updates.apply(params, optimizer, sums[0], rate)
        line = _line(done + 1, batch, weight, sums[1], float(norm), rate)
        del sums  # gradients, as large as the model
        done += 1
        seconds = time.monotonic() - started
        line |= {
            "seconds": seconds,
            "tokens_per_second": line["tokens"] / seconds,
            "compiles": compiles.count - compiled,
        }
        if line["compiles"]:
          release_memory()
        line = metrics.write(line)
        watch.see(line)
        budget.step_took(seconds, done)
        bar.total = budget.steps
        bar.set_postfix(loss=shown(line["loss"], 4), refresh=False)
        bar.update()
        if done % config.saving.every_steps == 0 or done == budget.steps or stop.requested:
          save()
        stop.raise_if_requested()
    trained = nnx.merge(graphdef, params)
    hand_over(out, trained, tokenizer, saves, config.model.source)
  return _summary(out, metrics, corpus, watch)


def _check(config: SftConfig) -> int:
  """Rows of a micro-batch; `UserError` for settings that don't fit together."""
  if not config.data.chats:
    raise UserError("nothing to train on: give --config.data.chats=FILE")
  if config.data.batch_rows % config.micro_batches:
    raise UserError(
        f"config.micro_batches = {config.micro_batches} does not divide"
        f" data.batch_rows = {config.data.batch_rows}"
    )
  return config.data.batch_rows // config.micro_batches


def _split(
    batch: dict[str, np.ndarray], parts: int
) -> Iterator[dict[str, np.ndarray]]:
  size = len(batch["tokens"]) // parts
  for start in range(0, size * parts, size):
    yield {name: value[start : start + size] for name, value in batch.items()}


def _line(
    step: int,
    batch: dict[str, np.ndarray],
    weight: float,
    sums: dict[str, jax.Array],
    norm: float,
    rate: float,
) -> dict[str, Any]:
  """One step's metrics; means over trained tokens."""
  padding = (batch["positions"] == 0) & (
      batch["end"] == np.arange(1, batch["end"].shape[1] + 1)
  )
  return {
      "step": step,
      **{name: float(value) / max(weight, 1.0) for name, value in sums.items()},
      "gradient_norm": norm,
      "learning_rate": rate,
      "tokens": int((~padding).sum()),
      "trained_tokens": int((batch["weight"] > 0).sum()),
  }


def _opening(corpus: corpora.Corpus, batches: Batches, budget: Budget, done: int) -> str:
  text = (
      f"{len(corpus.sequences)} of {corpus.records} chats, {corpus.tokens} tokens,"
      f" {corpus.trained_tokens} trained, in {len(batches.plan)} rows;"
      f" {budget.steps} steps"
  )
  if corpus.truncated:
    text += f"; {corpus.truncated} longer than a row are cut by whole turns"
  for cause, count in corpus.causes.items():
    text += f"; {count} left out: {cause}"
  return text + (f"; continuing after step {done}" if done else "")


def _summary(
    out: Path, metrics: Metrics, corpus: corpora.Corpus, watch: Watch
) -> dict[str, Any]:
  lines = metrics.lines
  return {
      "out": str(out),
      "checkpoint": str(out / "hf"),
      "steps": lines[-1]["step"] if lines else 0,
      "first_loss": lines[0]["loss"] if lines else None,
      "last_loss": lines[-1]["loss"] if lines else None,
      "seconds": round(sum(line["seconds"] for line in lines), 3),
      "tokens": sum(line["tokens"] for line in lines),
      "trained_tokens": sum(line["trained_tokens"] for line in lines),
      "chats": len(corpus.sequences),
      "truncated": corpus.truncated,
      "dropped": corpus.causes,
      "batches_without_loss": watch.empty,
      "updates_skipped": watch.skipped,
  }
