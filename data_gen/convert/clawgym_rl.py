"""ClawGym's RL directories (c): data_entry.json, input_files/, reward/.

Input files travel as bytes. A task that is there already is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from clawgym_jax.contracts import json_text
from data_gen.convert.contents import Contents, place_files
from data_gen.convert.foreign import Foreign, abroad, imported
from data_gen.convert.losses import LeftOut, Losses
from data_gen.convert.unseen import count_unseen
from sandbox.backends.base import Files, gather
from sandbox.verify.clawgym import REWARD_SH, WORKSPACE

FORM = "clawgym_rl"
_ENTRY = "data_entry.json"
_SCRIPT = f"""#!/usr/bin/env bash
set -euo pipefail
exec python3 {WORKSPACE}/reward/check.py {WORKSPACE} --score
"""
_UNSEEN = ("clock", "limits", "rubric", "solution", "hazard")


def write(target: Path, tasks: Iterable[Contents], losses: Losses) -> int:
  new = 0
  target.mkdir(parents=True, exist_ok=True)
  for contents in tasks:
    try:
      files = _directory(abroad(contents, "check.py", REWARD_SH))
    except LeftOut as cause:
      losses.leave_out(contents.name, str(cause))
      continue
    count_unseen(contents, _UNSEEN, losses)
    new += place_files(target, contents.name, files)
  return new


def read(source: Path, losses: Losses, split: str) -> Iterator[Contents]:
  for directory in directories(source):
    try:
      yield imported(_task(directory), split, losses)
    except LeftOut as cause:
      losses.leave_out(directory.name, str(cause))


def directories(source: Path) -> list[Path]:
  return sorted(path.parent for path in source.glob(f"[!.]*/{_ENTRY}"))


def _directory(task: Foreign) -> Files:
  entry: dict[str, Any] = {
      "task_id": task.id,
      "user_query": task.prompt,
      "metadata": {"category": task.category, "grading_type": "automated"},
  }
  if task.inputs:
    entry["input_mount_dir"] = WORKSPACE
  if task.form == FORM:
    entry = {**task.fields, "user_query": task.prompt}
  reward = dict(task.reward)
  if task.command != REWARD_SH:  # of a set that has a hook instead
    reward["reward.sh"] = f"#!/usr/bin/env bash\n{_hook(task.command)}\n".encode()
  elif "reward.sh" not in reward:
    reward["reward.sh"] = _SCRIPT.encode()
  return {
      _ENTRY: (json_text.dump(entry, indent=2) + "\n").encode(),
      **{f"input_files/{path}": data for path, data in task.inputs.items()},
      **{f"reward/{path}": data for path, data in reward.items()},
  }


def _hook(command: str) -> str:
  """The hook, run where it expects to be and printing one number last."""
  mean = (
      "import json, sys; said = json.loads(sys.stdin.read());"
      " print(sum(map(float, said.values())) / len(said)"
      " if isinstance(said, dict) else float(said))"
  )
  return f"set -euo pipefail\ncd {WORKSPACE}\n{{ {command}\n}} | python3 -c '{mean}'"


def _task(directory: Path) -> Foreign:
  try:
    entry = json_text.parse((directory / _ENTRY).read_text())
    metadata = entry.get("metadata") or {}
    prompt, task_id = entry["user_query"], entry.get("task_id") or directory.name
    category = str(metadata.get("category") or "")
  except (OSError, ValueError, KeyError, AttributeError):
    raise LeftOut(f"its {_ENTRY} can't be read, or has no user_query") from None
  if not isinstance(prompt, str):
    raise LeftOut(f"its {_ENTRY} has no user_query that is text")
  reward = gather(directory / "reward")
  if "reward.sh" not in reward:
    raise LeftOut("it has no reward/reward.sh")
  return Foreign(
      str(task_id),
      prompt,
      gather(directory / "input_files"),
      reward,
      REWARD_SH,
      category=category,
      rules=metadata.get("rule") or None,
      fields={**entry, "user_query": ""},  # in its place, held by `prompt`
      form=FORM,
  )
