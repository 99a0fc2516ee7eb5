"""The supervised loop: batches to updates, saved so that it can stop anywhere.

A step takes a batch, sums gradients over its micro-batches and updates. A save
at step n holds weights, optimizer, the data iterator's position and how many
steps the run is to have; the same command continues from the last whole save
with the same batches. Saves are written while the next steps run. OUT holds
run.json, metrics.jsonl, checkpoints/ and, at the end, hf/, a Hugging Face folder,
and adapter/ where adapters were trained.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from pathlib import Path
from typing import Any

import jax
from flax import nnx

from clawgym_jax.checkpoints import orbax
from clawgym_jax.configs import base
from clawgym_jax.configs.base import SftConfig
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.data import corpus as corpora
from clawgym_jax.data.pipeline import Batches
from clawgym_jax.parallel.compiles import CompileCount
from clawgym_jax.parallel.host import release_memory
from clawgym_jax.sft import guard
from clawgym_jax.sft.budget import Budget
from clawgym_jax.sft.display import Display
from clawgym_jax.sft.evaluate import Evaluation
from clawgym_jax.sft.feed import Feed, over_processes
from clawgym_jax.sft.meter import Meter
from clawgym_jax.sft.optimizer import learning_rate
from clawgym_jax.sft.profile import Profile
from clawgym_jax.sft.scores import supervised_loss
from clawgym_jax.sft.session import Metrics, StopSignals, claim_folder, loggers
from clawgym_jax.sft.setup import described, hand_over, load_model, mesh_of, states
from clawgym_jax.sft.updates import Updates, Watch


def train(config: SftConfig, *, profile_steps: str = "") -> dict[str, Any]:
  """Runs or continues the run of `config`; returns its summary.

  `profile_steps`: FIRST-LAST, steps to trace.

  Raises KeyboardInterrupt after Ctrl-C, SystemExit(143) after SIGTERM, both
  with the state saved; `UserError` for what the caller can mend.
  """
  micro_rows = _check(config)
  profile = Profile(profile_steps, Path(config.out) / "profile")
  sources = corpora.open_sources(config.data.chats)
  compiles = CompileCount()
  with contextlib.ExitStack() as stack:
    out = stack.enter_context(claim_folder(config, {"chats": sources.digest}))
    mesh = stack.enter_context(mesh_of(config.mesh, micro_rows))
    model, tokenizer = load_model(
        config.model,
        sources.texts,
        config.seed,
        flat_rows=not config.data.share_prefixes,
    )
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
    loss = functools.partial(supervised_loss, z_loss=config.z_loss)
    updates = Updates(graphdef, params, loss, config.optimizer, mesh)
    optimizer = updates.initial(params)
    evaluation = None
    if config.evaluation.chats:
      evaluation = Evaluation(config, tokenizer, graphdef, mesh)
    saves = stack.enter_context(contextlib.closing(states(out, config.saving)))
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
      _compare_code(restored)
    settings = base.keys(config)
    metrics = Metrics(
        out / "metrics.jsonl",
        done=done,
        others=stack.enter_context(loggers(config.logging, out, settings)),
    )
    meter, watch = Meter(model), Watch()
    bound = guard.Guard(config.spike, (line["loss"] for line in metrics.lines))
    print(_opening(corpus, batches, budget, done), file=sys.stderr)

    def save(data: dict[str, Any], score: float | None) -> None:
      release_memory()
      saves.save(
          orbax.TrainState(
              step=done,
              params=params,
              optimizer=optimizer,
              data={"batches": data, "steps": budget.settled, "run": settings},
              config=described(model),
              score=score,
          )
      )

    stack.callback(batches.close)
    feed = Feed(batches, mesh, config.micro_batches)
    stack.callback(profile.stop)
    display = stack.enter_context(Display(budget.steps, done=done))
    while done < budget.steps:
      profile.before(done + 1)
      started = time.monotonic()
      compiled = compiles.count
      fed = feed.take()
      counts = over_processes(meter.counts(fed))
      weight = counts["weight"]
      grads, reported = updates.summed(params, fed.parts, weight)
      rate = learning_rate(config.optimizer, done, budget.steps)
      usable = reported["loss"] <= bound.limit * max(weight, 1.0)
      params, optimizer, norm = updates.apply(params, optimizer, grads, rate, usable)
      del grads  # as large as the model
      if done + 1 < budget.steps:
        feed.prefetch(norm)
      learned = _learned(reported, counts) | {"gradient_norm": float(norm)}
      done += 1
      line = {"step": done, **learned, "learning_rate": rate}
      line |= meter.line(counts, time.monotonic() - started, fed.waited)
      line["compiles"] = compiles.count - compiled
      profile.after(done)
      cause = bound.cause(learned["loss"], learned["gradient_norm"])
      score = None
      last = done == budget.steps
      due = last or done % config.evaluation.every_steps == 0
      if evaluation is not None and due and cause is None:
        score = line["eval_loss"] = evaluation.loss(params)
      if line["compiles"]:
        release_memory()
      line = metrics.write(line)
      if cause is not None:
        raise guard.report(
            out, done, cause, fed, updates, params, tokenizer, (sources, corpus), mesh
        )
      watch.see(line)
      budget.step_took(line["seconds"], done)
      display.step(line, budget.steps)
      # All processes of a run stop at the same step.
      stopping = over_processes({"stop": stop.requested})["stop"] > 0
      if done % config.saving.every_steps == 0 or done == budget.steps or stopping:
        save(fed.state, score)
      if stopping:
        saves.wait()
        stop.leave()
    saves.wait()
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
  if config.data.row_length % (2 * config.mesh.context) and config.mesh.context > 1:
    raise UserError(
        f"rows of {config.data.row_length} tokens can't be cut into 2 equal parts for"
        f" each of {config.mesh.context} devices: change data.row_length or"
        " mesh.context"
    )
  if config.saving.keep_best:
    if not config.evaluation.chats:
      raise UserError(
          "saving.keep_best has nothing to go by: give --config.evaluation.chats=FILE"
      )
    if config.saving.every_steps % config.evaluation.every_steps:
      raise UserError(
          f"saving.every_steps = {config.saving.every_steps} is no multiple of"
          f" evaluation.every_steps = {config.evaluation.every_steps}: what is saved"
          " would have no loss for saving.keep_best"
      )
  return config.data.batch_rows // config.micro_batches


def _compare_code(restored: orbax.TrainState) -> None:
  now = orbax.code_version()
  if restored.code_version != now:
    print(
        f"note: step {restored.step} was saved by version {restored.code_version},"
        f" this is {now}",
        file=sys.stderr,
    )


def _learned(
    sums: dict[str, jax.Array], counts: dict[str, float]
) -> dict[str, float]:
  """Means over trained tokens, or over trajectories where the name says so."""
  return {
      name: float(value)
      / max(counts["share" if name.endswith("by_trajectory") else "weight"], 1.0)
      for name, value in sums.items()
  }


def _opening(
    corpus: corpora.Corpus, batches: Batches, budget: Budget, done: int
) -> str:
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
  found = {
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
  }
  evaluated = [line["eval_loss"] for line in lines if "eval_loss" in line]
  return found | ({"eval_loss": evaluated[-1]} if evaluated else {})
