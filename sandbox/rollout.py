"""Rolls out a harness on tasks, one sandbox an attempt, every model call recorded.

  python -m sandbox.rollout --tasks=DIR --harness=claw --upstream=URL --out=DIR

Stopped at any point, the same command continues. See `fleet.run` for what is
in --out. The upstream's API key, if it needs one, is UPSTREAM_API_KEY. Attempts
are made in this process, with --workers=N in N processes, or with
--executor=ray on the nodes of the Ray cluster that RAY_ADDRESS names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from sandbox.backends.flags import backend
from sandbox.fleet import RunSettings, roll_out
from sandbox.fleet.executor import EXECUTORS

_TASKS = flags.DEFINE_string("tasks", None, "Folder of task directories.")
_HARNESS = flags.DEFINE_string(
    "harness", "claw", "claw, or without a model: oracle, null, an adversary."
)
_UPSTREAM = flags.DEFINE_string(
    "upstream", None, "URL of an engine or of an OpenAI chat API."
)
_OUT = flags.DEFINE_string("out", None, "Folder of the run.", required=True)
_SAMPLES = flags.DEFINE_integer("samples", 1, "Attempts that count, per task.", 1)
_CONCURRENCY = flags.DEFINE_integer("concurrency", 8, "Attempts at once.", 1)
_POOL = flags.DEFINE_string("pool", None, "sqlite:///FILE; default is in --out.")
_CHANNEL = flags.DEFINE_string("channel", "eval", "The pool's channel.")
_MODEL = flags.DEFINE_string(
    "model", None, "Model to ask a chat API for; default is the first it offers."
)
_FOLLOW = flags.DEFINE_bool(
    "follow", False, "Work off what others plan until the channel is closed."
)
_MAX_TURNS = flags.DEFINE_integer(
    "max_turns", None, "Model calls per attempt; default is the task's.", 1
)
_EXECUTOR = flags.DEFINE_enum(
    "executor", "local", EXECUTORS, "Where attempts are made: here, or on Ray's nodes."
)
_WORKERS = flags.DEFINE_integer(
    "workers", 1, "Processes that make attempts; 1 is this one. local only.", 1
)
_PER_NODE = flags.DEFINE_integer(
    "per_node", None, "Attempts at once on a node; default shares out. ray only.", 1
)
_GATEWAY_HOST = flags.DEFINE_string(
    "gateway_host",
    None,
    "Address of this machine by which attempts reach the model; default is 127.0.0.1,"
    " with ray this node's.",
)
_PINS = (
    flags.DEFINE_float("temperature", None, "Wins over what the agent sends.", 0.0),
    flags.DEFINE_float("top_p", None, "Wins over what the agent sends.", 0.0, 1.0),
    flags.DEFINE_integer("max_tokens", None, "Wins over what the agent sends.", 1),
    flags.DEFINE_integer("seed", None, "Makes sampling repeatable.", 0),
)


def main() -> dict[str, Any]:
  summary = roll_out(
      RunSettings(
          out=Path(_OUT.value),
          harness=_HARNESS.value,
          tasks=Path(_TASKS.value) if _TASKS.value else None,
          upstream=_UPSTREAM.value,
          samples=_SAMPLES.value,
          concurrency=_CONCURRENCY.value,
          pool=_POOL.value,
          channel=_CHANNEL.value,
          pins={f.name: f.value for f in _PINS if f.value is not None},
          turns=_MAX_TURNS.value,
          follow=_FOLLOW.value,
          backend=backend(),
          model=_MODEL.value,
          executor=_EXECUTOR.value,
          workers=_WORKERS.value,
          per_node=_PER_NODE.value,
          gateway_host=_GATEWAY_HOST.value,
      )
  )
  mean = summary["mean_reward"]
  print(
      f"{summary['planned']} planned: {summary['scored']} scored,"
      f" {summary['truncated']} truncated, {summary['unscored']} unscored;"
      f" mean reward {'-' if mean is None else f'{mean:.3f}'}"
  )
  for cause, times in summary["unscored_by_cause"].items():
    print(f"  unscored {times}: {cause}")
  if summary["check_errors"]:
    print(
        f"  the checks of {summary['check_errors']} gave no sound result, which is no"
        " score: audit their tasks (python -m data_gen.audit) or mend their checks"
    )
  if summary["rubrics_to_judge"]:
    print(
        f"  of {summary['rubrics_to_judge']} the rubric is still to be judged: their"
        " reward is that of the checks"
    )
  if "bad_reports" in summary:
    print(f"  {summary['bad_reports']} reports of services were none, and were dropped")
  print(f"wrote {_OUT.value}/trajectories.jsonl")
  return summary


if __name__ == "__main__":
  cli.run(main)
