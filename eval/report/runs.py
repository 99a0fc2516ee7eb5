"""Reading what the page is about: runs, training metrics, stage timings."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.errors import UserError, require
from clawgym_jax.contracts.files import read_lines
from clawgym_jax.contracts.trajectory import Trajectory, trajectory_from_record

TRAJECTORIES = "trajectories.jsonl"
SUMMARY = "summary.json"
TOKENIZER = "tokenizer"


@dataclass(frozen=True)
class Run:
  """A run's folder as read: `summary` is None for rollouts without a suite."""

  name: str
  summary: dict[str, Any] | None
  trajectories: list[Trajectory]
  tokenizer: Tokenizer | None


@dataclass(frozen=True)
class Stage:
  """A stage of the work and how long it took, in seconds."""

  name: str
  title: str
  seconds: float


def named_paths(flag: str, entries: list[str]) -> dict[str, Path]:
  """`name=path` entries of a flag, in order; the names must differ."""
  result: dict[str, Path] = {}
  for entry in entries:
    name, separator, path = entry.partition("=")
    if not separator or not name or not path:
      raise UserError(f"--{flag}: {entry!r} is not name=path, such as sft=out/sft")
    if name in result:
      raise UserError(f"--{flag}: {name!r} is given twice; names must differ")
    result[name] = Path(path)
  return result


def load_run(name: str, directory: Path, *, suite: bool = True) -> Run:
  """Reads a folder that eval.run wrote, or, without `suite`, any rollouts."""
  path = directory / TRAJECTORIES
  if not path.is_file():
    raise UserError(f"{path} does not exist: name a folder that a run has finished")
  summary = None
  with contextlib.suppress(FileNotFoundError):
    summary = json.loads((directory / SUMMARY).read_text())
  if summary is not None and "tasks" not in summary:
    summary = None  # a rollout's, which knows of no suite
  if suite and summary is None:
    raise UserError(f"{directory} has no summary yet: finish eval.run for {name!r}")
  tokenizer = None
  if (directory / TOKENIZER).is_dir():
    tokenizer = Tokenizer.load(directory / TOKENIZER)
  trajectories = [trajectory_from_record(r) for r in read_lines(path)]
  return Run(name, summary, trajectories, tokenizer)


def require_one_suite(runs: list[Run]) -> None:
  """Refuses to compare runs whose tasks differ."""
  first = runs[0]
  for run in runs[1:]:
    if run.summary["suite"]["hash"] != first.summary["suite"]["hash"]:
      raise UserError(
          f"{run.name!r} and {first.name!r} ran different suites, so their scores"
          " can't be compared; run both on one"
      )


def load_metrics(path: Path) -> list[dict[str, Any]]:
  """A trainer's metrics: one JSON object a line, each with its `step`."""
  if not path.is_file():
    raise UserError(f"{path} does not exist: name a trainer's metrics file")
  rows = list(read_lines(path))
  if not rows or not all(isinstance(r, dict) and "step" in r for r in rows):
    raise UserError(f"{path} has no steps: every line needs a \"step\"")
  return rows


def load_timings(path: Path) -> list[Stage]:
  """A JSON array of {"stage": name, "seconds": number, "title": optional words}."""
  try:
    rows = json.loads(path.read_text())
  except FileNotFoundError:
    raise UserError(f"{path} does not exist: name the file of stage timings") from None
  require(isinstance(rows, list), f"{path} is not a JSON array of stages")
  for row in rows:
    require(
        isinstance(row.get("stage"), str)
        and isinstance(row.get("seconds"), (int, float))
        and 0 <= row["seconds"] < float("inf"),
        f"{path}: {row} is not {{\"stage\": name, \"seconds\": number}}",
    )
  return [Stage(r["stage"], r.get("title") or r["stage"], r["seconds"]) for r in rows]
