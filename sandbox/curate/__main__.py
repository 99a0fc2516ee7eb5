"""Turns trajectories into a set for supervised fine-tuning.

  python -m sandbox.curate --trajectories=DIR --min_reward=.5 --to=chat_jsonl --out=F

One line a kept conversation: {"messages", "tools", "task_id", "reward"}.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError, UserError
from clawgym_jax.contracts.files import read_lines, write_atomic
from clawgym_jax.contracts.trajectory import Trajectory, trajectory_from_record
from sandbox.curate import curate

_TRAJECTORIES = flags.DEFINE_string(
    "trajectories", None, "Folder of a rollout, or its trajectories.jsonl.",
    required=True,
)
_OUT = flags.DEFINE_string("out", None, "File to write.", required=True)
_TO = flags.DEFINE_string("to", "chat_jsonl", "Format; chat_jsonl so far.")
_MIN_REWARD = flags.DEFINE_float("min_reward", 0.5, "Least reward kept.", 0.0, 1.0)
_MAX_PER_TASK = flags.DEFINE_integer("max_per_task", 4, "Kept per task at most.", 1)


def _load(place: Path) -> list[Trajectory]:
  path = place / "trajectories.jsonl" if place.is_dir() else place
  if not path.is_file():
    raise UserError(
        f"there is no {path}; python -m sandbox.rollout writes it when it is done"
    )
  try:
    return [trajectory_from_record(record) for record in read_lines(path)]
  except (TypeError, KeyError) as error:
    raise RecordError(f"{path} holds a line that is no trajectory: {error}") from None


def main() -> dict[str, Any]:
  if _TO.value != "chat_jsonl":
    raise UserError(f"--to={_TO.value} isn't built in yet; use --to=chat_jsonl")
  trajectories = _load(Path(_TRAJECTORIES.value))
  kept, dropped = curate(
      trajectories, min_reward=_MIN_REWARD.value, max_per_task=_MAX_PER_TASK.value
  )
  counts = ", ".join(f"{n} {cause}" for cause, n in dropped.items()) or "nothing"
  if not kept:
    raise UserError(f"nothing to keep of {len(trajectories)} trajectories: {counts}")
  lines = [json_text.dump(row) + "\n" for row in kept]
  write_atomic(Path(_OUT.value), "".join(lines))
  print(
      f"kept {len(kept)} conversations of {len(trajectories)} trajectories;"
      f" dropped {counts}"
  )
  return {"read": len(trajectories), "kept": len(kept), "dropped": dropped}


if __name__ == "__main__":
  cli.run(main)
