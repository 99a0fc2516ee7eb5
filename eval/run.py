"""Runs a suite with one agent and says how it did, over a stated denominator.

  python -m eval.run --suite=DIR --harness=claw --endpoint=URL --out=DIR --name=sft

Stopped at any point, the same command continues, attempt by attempt. --out
holds the rollout (see `sandbox.fleet.run`), `suite.json` that says what was
measured, the engine's `tokenizer/` where there is one, and at the end
`summary.json`, in which planned = scored + truncated + unscored.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import read_lines, write_json
from clawgym_jax.contracts.runs import same_run
from clawgym_jax.contracts.task import Task, list_tasks, load_task
from clawgym_jax.contracts.trajectory import trajectory_from_record
from eval.summary import suite_hash, summarise
from sandbox.backends.flags import backend
from sandbox.fleet import RunSettings, roll_out
from sandbox.harnesses import load

_SUITE = flags.DEFINE_string("suite", None, "Folder of task directories.")
_HARNESS = flags.DEFINE_string(
    "harness", "claw", "claw, or without a model: null, oracle, an adversary."
)
_ENDPOINT = flags.DEFINE_string(
    "endpoint", None, "URL of an engine or of an OpenAI chat API."
)
_OUT = flags.DEFINE_string("out", None, "Folder of the run.")
_NAME = flags.DEFINE_string("name", None, "What to call the run; default is --out's.")
_SAMPLES = flags.DEFINE_integer("samples", 1, "Attempts per task.", 1)
_CONCURRENCY = flags.DEFINE_integer("concurrency", 8, "Attempts at once.", 1)
_TEMPERATURE = flags.DEFINE_float("temperature", 0.0, "0 takes the likeliest token.", 0.0)
_TOP_P = flags.DEFINE_float("top_p", None, "Nucleus of the distribution.", 0.0, 1.0)
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", None, "Tokens of one reply.", 1)
_MAX_TURNS = flags.DEFINE_integer(
    "max_turns", None, "Model calls per attempt; default is the task's.", 1
)
_SEED = flags.DEFINE_integer("seed", None, "Makes sampling repeatable.", 0)
_MODEL = flags.DEFINE_string(
    "model", None, "Model to ask a chat API for; default is the first it offers."
)
_STRICT = flags.DEFINE_bool("strict", False, "Fail if any attempt is unscored.")


def main() -> dict[str, Any]:
  out, tasks, needs_model = _checked()
  name = _NAME.value or out.resolve().name
  engine = _engine(_ENDPOINT.value) if needs_model else None
  model = engine["model"] if engine else _MODEL.value
  same_run(
      out / "suite.json",
      {
          "suite": suite_hash(tasks),
          "model": model,
          "weights": engine and engine["weights"],
          "compute_dtype": engine and engine["compute_dtype"],
      },
  )
  if engine:
    Tokenizer.from_files(engine["tokenizer"]).save(out / "tokenizer")
  pins = {
      "temperature": _TEMPERATURE.value,
      "top_p": _TOP_P.value,
      "max_tokens": _MAX_TOKENS.value,
      "seed": _SEED.value,
  }
  pins = {k: v for k, v in pins.items() if v is not None} if needs_model else {}
  rollout = roll_out(
      RunSettings(
          out=out,
          harness=_HARNESS.value,
          tasks=Path(_SUITE.value),
          upstream=_ENDPOINT.value if needs_model else None,
          samples=_SAMPLES.value,
          concurrency=_CONCURRENCY.value,
          pins=pins,
          turns=_MAX_TURNS.value,
          backend=backend(),
          model=_MODEL.value,
      )
  )
  trajectories = [
      trajectory_from_record(r) for r in read_lines(out / "trajectories.jsonl")
  ]
  summary = summarise(name, _HARNESS.value, tasks, _SAMPLES.value, trajectories)
  lost = Counter(rollout["dropped_attempts_by_cause"])
  summary["remade"] = dict(lost - Counter(summary["by_cause"]["unscored"]))
  summary["settings"] = {"model": model, "turns": _MAX_TURNS.value, **pins}
  write_json(out / "summary.json", summary)
  for line in _lines(summary):
    print(line)
  if _STRICT.value and summary["unscored"]:
    raise UserError(
        f"{summary['unscored']} of {summary['planned']} attempts are unscored, which"
        " --strict does not accept; mend the cause and use another --out"
    )
  return {k: v for k, v in summary.items() if k != "tasks"}


def _checked() -> tuple[Path, list[Task], bool]:
  """What the flags name, before any work starts: folder, suite, needs a model."""
  if not _SUITE.value or not _OUT.value:
    raise UserError("--suite=DIR and --out=DIR are needed; see --help")
  needs_model = load(_HARNESS.value).needs_model
  if needs_model and not _ENDPOINT.value:
    raise UserError(
        f"harness {_HARNESS.value} needs a model: give --endpoint=URL"
        " (python -m clawgym_jax.serve starts one)"
    )
  if needs_model and _SAMPLES.value > 1 and _TEMPERATURE.value == 0:
    raise UserError(
        f"--samples={_SAMPLES.value} at --temperature=0 makes the same attempt again;"
        " set a temperature, or --samples=1"
    )
  tasks = [load_task(path) for path in list_tasks(Path(_SUITE.value))]
  if not tasks:
    raise UserError(f"{_SUITE.value} holds no tasks (folders with a task.json)")
  return Path(_OUT.value), tasks, needs_model


def _engine(url: str) -> dict[str, Any] | None:
  """What an engine says it serves, and its tokenizer; None for a chat API."""
  base = url.rstrip("/").removesuffix("/v1")
  info = _get(f"{base}/info")
  if not isinstance(info, dict) or info.get("kind") != "tokens":
    return None
  files = _get(f"{base}/tokenizer")
  if not isinstance(files, dict):
    raise UserError(f"the engine at {url} gives no tokenizer: {base}/tokenizer must")
  return {
      **{key: info.get(key) for key in ("model", "weights", "compute_dtype")},
      "tokenizer": files,
  }


def _get(url: str) -> Any:
  """The JSON at `url`, or None where something else is."""
  try:
    with urllib.request.urlopen(url, timeout=30.0) as response:
      return json.load(response)
  except urllib.error.HTTPError:
    return None
  except OSError as error:
    raise UserError(
        f"no answer from --endpoint at {url}: {error}; start it, or correct its address"
    ) from None
  except ValueError as error:
    if "unknown url type" not in str(error):
      return None  # an answer, but not JSON
    raise UserError(f"--endpoint: {url!r} is no address; give http://HOST:PORT") from None


def _lines(summary: dict[str, Any]) -> list[str]:
  """The summary in words."""
  if summary["mean"] is None:
    score = "no score"
  else:
    score = f"mean score {100 * summary['mean']:.1f} of 100"
    if summary["interval"]:
      low, high = summary["interval"]
      score += f" (95 % interval {100 * low:.1f} to {100 * high:.1f})"
  lines = [
      f"{summary['name']}: {score}; {summary['planned']} planned ="
      f" {summary['scored']} scored + {summary['truncated']} truncated +"
      f" {summary['unscored']} unscored"
  ]
  if summary["rubrics_to_judge"]:
    lines.append(
        f"  {summary['rubrics_to_judge']} of them have no score until their rubric is"
        f" judged; by the checks alone {100 * summary['code']['mean']:.1f} of 100"
    )
  for status, causes in summary["by_cause"].items():
    lines += [f"  {status} {count}: {cause}" for cause, count in causes.items()]
  return lines


if __name__ == "__main__":
  cli.run(main)
