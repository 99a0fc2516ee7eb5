"""What another format's readers do not see of a task, counted by name.

It is kept beside the checks for the way back, where the task is the same again;
who uses the task over there does without it.
"""

from __future__ import annotations

from data_gen.convert.contents import Contents
from data_gen.convert.foreign import GENERATOR
from data_gen.convert.losses import Losses

_SAID = {
    "clock": "the clock of the task: theirs is their machine's",
    "limits": "its limits on turns and seconds",
    "rubric": "its rubric",
    "solution": "its reference solution",
    "hazard": "that it holds a hazard, and what falls for it",
    "messages": "what the agent says: their checks get the files alone",
}


def count_unseen(contents: Contents, names: tuple[str, ...], losses: Losses) -> None:
  """Counts those of `names` that the task has."""
  ours = contents.record.get("provenance", {}).get("generator") != GENERATOR
  has = {
      "clock": ours,
      "limits": ours,
      "rubric": "rubric.json" in contents.files,
      "solution": "solution/calls.json" in contents.files,
      "hazard": contents.record.get("hazard", "none") != "none",
      "messages": True,
  }
  for name in names:
    if has[name]:
      losses.parts[f"not seen there: {_SAID[name]}"] += 1
