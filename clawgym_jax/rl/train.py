"""The on-policy loop: roll out, score, update, hand over the weights.

A step's rollouts are all sampled by the weights of its beginning; what is
older is refused by the pool. The engine and the trainer live in this process,
the agents in another. A save at step n holds weights and optimizer after n
steps; the same command continues from the last whole save with fresh
rollouts. OUT holds run.json, metrics.jsonl, checkpoints/, the pools and logs
of the rollouts and, at the end, hf/, a Hugging Face folder, and adapter/ where
adapters were trained.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flax import nnx

from clawgym_jax import cli
from clawgym_jax.checkpoints import orbax
from clawgym_jax.configs.base import RlConfig
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import list_tasks
from clawgym_jax.parallel.compiles import CompileCount
from clawgym_jax.parallel.host import release_memory
from clawgym_jax.pool import Group
from clawgym_jax.rl.learner import Learner
from clawgym_jax.rl.rollouts import Rollouts
from clawgym_jax.rl.rows import Experience, experience
from clawgym_jax.serve import Engine
from clawgym_jax.sft.optimizer import learning_rate
from clawgym_jax.sft.session import Metrics, StopSignals, claim_folder, shown
from clawgym_jax.sft.setup import described, hand_over, load_model, mesh_of, states
from clawgym_jax.sft.updates import Watch


def train(config: RlConfig) -> dict[str, Any]:
  """Runs or continues the run of `config`; returns its summary.

  Raises KeyboardInterrupt after Ctrl-C, SystemExit(143) after SIGTERM, both
  with the state saved; `UserError` for what the caller can mend.
  """
  tasks = _check(config)
  began = time.monotonic()
  compiles = CompileCount()
  with (
      claim_folder(config, {"tasks": _digest(tasks)}) as out,
      StopSignals() as stop,
      mesh_of(config.mesh, config.micro_rows) as mesh,
  ):
    model, tokenizer = load_model(
        config.model, lambda: [(t / "task.json").read_text() for t in tasks], config.seed
    )
    graphdef, params = nnx.split(model, nnx.Param)
    reference = None
    if config.objective.kl_coef:
      reference = nnx.state(nnx.clone(model), nnx.Param)
    learner = Learner(config, graphdef, params, reference, mesh)
    saves = states(out, config.saving)
    done = 0
    restored = saves.restore(
        orbax.TrainState(step=0, params=params, optimizer=learner.optimizer)
    )
    if restored is not None:
      learner.params, learner.optimizer = restored.params, restored.optimizer
      done = restored.step
      print(f"continuing after step {done}", file=sys.stderr)
    metrics = Metrics(out / "metrics.jsonl", done=done)
    watch = Watch()
    saved = done

    def save() -> None:
      nonlocal saved
      if saved < done:
        release_memory()
        saves.save(
            orbax.TrainState(
                step=done,
                params=learner.params,
                optimizer=learner.optimizer,
                config=described(model),
                score=-metrics.lines[-1]["reward_mean"],
            )
        )
        saves.wait()  # the step after it needs the memory
        saved = done
        release_memory()

    if done < config.steps:
      print("compiling the engine's programs, then the trainer's", file=sys.stderr)
      with (
          _engine(config, graphdef, learner.params, tokenizer, done) as engine,
          Rollouts(
              config.rollouts, out, engine, seed=config.seed, stop=stop
          ) as rollouts,
          cli.progress(config.steps, "rl", done=done, unit="step") as bar,
      ):
        try:
          while done < config.steps:
            compiled = compiles.count
            line = _step(config, learner, engine, rollouts, tasks, done, bar)
            line["compiles"] = compiles.count - compiled
            done += 1
            line = metrics.write(line)
            watch.see(line)
            bar.set_postfix_str(f"reward {shown(line['reward_mean'], 3)}", refresh=False)
            bar.update()
            if done % config.saving.every_steps == 0:
              save()
            expected = line["seconds"]
            if line["compiles"]:
              expected /= 2  # about half of a step that compiles is compiling
              release_memory()
            elapsed = time.monotonic() - began
            if config.max_seconds and elapsed + expected > config.max_seconds:
              print(f"the time budget ends the run after step {done}", file=sys.stderr)
              break
            stop.raise_if_requested()
        finally:
          save()
    trained = nnx.merge(graphdef, learner.params)
    hand_over(out, trained, tokenizer, saves, config.model.source)
  return _summary(out, metrics, watch)


def _step(
    config: RlConfig,
    learner: Learner,
    engine: Engine,
    rollouts: Rollouts,
    tasks: Sequence[Path],
    step: int,
    bar: Any,
) -> dict[str, Any]:
  """One step from policy version `step` to `step` + 1; its line of metrics."""
  started = time.monotonic()
  sampled_before = engine.stats.sampled_tokens
  groups = rollouts.collect(
      step,
      _tasks_of(config, tasks, step),
      step,
      _reporter(bar),
  )
  rolled = time.monotonic()
  made = experience(
      groups,
      row_length=config.row_length,
      advantage=config.objective.advantage,
      reward=config.objective.reward,
      temperature=config.rollouts.temperature,
  )
  line = _rollout_metrics(groups, made)
  rate = learning_rate(config.optimizer, step, config.steps)
  line |= {"step": step + 1, "learning_rate": rate, "gradient_norm": 0.0}
  if made.rows:
    line |= learner.learn(made, rate, step)
  learned = time.monotonic()
  engine.update_weights(learner.params, step + 1)
  rollouts.pool.set_policy_version(step + 1)
  rollouts.consumed(groups)
  ended = time.monotonic()
  sampled = engine.stats.sampled_tokens - sampled_before
  return line | {
      "engine_tokens": sampled,
      "engine_tokens_per_second": sampled / (rolled - started),
      "seconds": ended - started,
      "seconds_rollout": rolled - started,
      "seconds_sync": ended - learned,
      "engine_recompiles": engine.recompiles,
  }


def _reporter(bar: Any) -> Callable[[str], None]:
  """Shows a text beside the bar, as often as the bar itself is shown."""
  shown = time.monotonic()

  def report(text: str) -> None:
    nonlocal shown
    if time.monotonic() - shown >= bar.mininterval:
      shown = time.monotonic()
      bar.set_postfix_str(text)

  return report


def _rollout_metrics(groups: list[Group], made: Experience) -> dict[str, Any]:
  outcomes = [t.outcome.status for g in groups for t in g.trajectories]
  turns = [len(t.steps) for g in groups for t in g.trajectories]
  return {
      "reward_mean": sum(made.rewards) / max(1, len(made.rewards)),
      "reward_max": max(made.rewards, default=0.0),
      "groups": made.groups,
      "zero_variance_share": made.zero_variance / max(1, made.groups),
      "trajectories": len(outcomes),
      "truncated": outcomes.count("truncated"),
      "unscored": made.unscored,
      "turns_mean": sum(turns) / max(1, len(turns)),
      "sampled_tokens": made.sampled_tokens,
      "trained_tokens": made.trained_tokens,
      "dropped_tokens": dict(made.dropped),
  }


def _engine(
    config: RlConfig, graphdef: nnx.GraphDef, params: nnx.State, tokenizer: Any, version: int
) -> Engine:
  return Engine(
      nnx.merge(graphdef, params),
      tokenizer,
      slots=config.rollouts.slots,
      max_len=config.rollouts.max_len,
      policy_version=version,
  )


def _tasks_of(config: RlConfig, tasks: Sequence[Path], step: int) -> list[Path]:
  """The tasks of one step: passes over all tasks, each in an order of its own."""
  count = config.rollouts.groups_per_step + config.rollouts.extra_groups
  chosen = []
  for position in range(step * count, (step + 1) * count):
    epoch, at = divmod(position, len(tasks))
    order = random.Random(f"{config.seed}:{epoch}").sample(range(len(tasks)), len(tasks))
    chosen.append(tasks[order[at]])
  return chosen


def _check(config: RlConfig) -> list[Path]:
  """The tasks; `UserError` for settings that don't fit together."""
  if not config.rollouts.tasks:
    raise UserError("no tasks to learn on: give --config.rollouts.tasks=DIR")
  tasks = list_tasks(Path(config.rollouts.tasks))
  if not tasks:
    raise UserError(
        f"{config.rollouts.tasks} holds no tasks (folders with a task.json);"
        " python -m data_gen.synthesize makes some"
    )
  if config.rollouts.staleness:
    raise UserError(
        "rollouts.staleness > 0 (training while older weights still sample) is not"
        " built in yet: leave it 0"
    )
  if config.row_length < config.rollouts.max_len:
    raise UserError(
        f"row_length = {config.row_length} is less than rollouts.max_len ="
        f" {config.rollouts.max_len}: the longest conversation must fit a row"
    )
  return tasks


def _digest(tasks: Sequence[Path]) -> str:
  digest = hashlib.sha256()
  for task in tasks:
    digest.update((task / "task.json").read_bytes())
  return digest.hexdigest()


def _summary(out: Path, metrics: Metrics, watch: Watch) -> dict[str, Any]:
  lines = metrics.lines
  edge = max(1, len(lines) // 4)
  mean = lambda part: sum(l["reward_mean"] for l in part) / len(part) if part else None
  return {
      "out": str(out),
      "checkpoint": str(out / "hf"),
      "steps": lines[-1]["step"] if lines else 0,
      "reward_first_quarter": mean(lines[:edge]),
      "reward_last_quarter": mean(lines[-edge:]),
      "seconds": round(sum(line["seconds"] for line in lines), 3),
      "sampled_tokens": sum(line["sampled_tokens"] for line in lines),
      "trained_tokens": sum(line["trained_tokens"] for line in lines),
      "steps_without_signal": watch.empty,
      "updates_skipped": watch.skipped,
  }
