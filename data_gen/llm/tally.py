"""What a run of ideas cost and how far they came, counted by stage.

A `Tally` is of one idea. What it counts of replies is the same whether they came
from the endpoint or were kept, so a run that is repeated counts the same; what
was paid for and what failed on the way is counted apart, in `Paid`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

STAGES = ("idea", "task", "checks", "solve", "rubric", "audit", "repair")


class Tally:
  """One idea's way: stages it entered and passed, replies, tokens, discards."""

  def __init__(self) -> None:
    self._entered: set[str] = set()
    self._passed: set[str] = set()
    self._used: dict[str, Counter[str]] = defaultdict(Counter)
    self._discarded: dict[str, Counter[str]] = defaultdict(Counter)

  def enter(self, stage: str) -> None:
    self._entered.add(stage)

  def leave(self, stage: str) -> None:
    """It is through the stage, for the first time or again."""
    self._passed.add(stage)

  def reply(self, stage: str, prompt_tokens: int, completion_tokens: int) -> None:
    self._used[stage].update(
        replies=1, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens
    )

  def discard(self, stage: str, cause: str) -> None:
    """A reply, or what was made of it, was of no use."""
    self._discarded[stage][cause] += 1

  def record(self) -> dict[str, Any]:
    """By stage, those it entered alone; JSON-ready."""
    return {
        stage: {
            "passed": stage in self._passed,
            **{
                name: self._used[stage][name]
                for name in ("replies", "prompt_tokens", "completion_tokens")
            },
            "discarded": dict(sorted(self._discarded[stage].items())),
        }
        for stage in STAGES
        if stage in self._entered
    }


class Paid:
  """What one run asked the endpoint for: tokens and failures, by stage."""

  def __init__(self) -> None:
    self.tokens: dict[str, Counter[str]] = defaultdict(Counter)
    self.failed: dict[str, Counter[str]] = defaultdict(Counter)

  def reply(self, stage: str, prompt_tokens: int, completion_tokens: int) -> None:
    self.tokens[stage].update(
        replies=1, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens
    )

  def fail(self, stage: str, cause: str) -> None:
    self.failed[stage][cause] += 1


def summed(records: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
  """The records of many ideas as one, by stage: `entered` and `passed` count ideas."""
  total: dict[str, dict[str, Any]] = {}
  for stages in records:
    for stage, found in stages.items():
      row = total.setdefault(
          stage,
          {
              "entered": 0, "passed": 0, "replies": 0, "prompt_tokens": 0,
              "completion_tokens": 0, "discarded": Counter(),
          },
      )  # fmt: skip
      row["entered"] += 1
      row["passed"] += found["passed"]
      for name in ("replies", "prompt_tokens", "completion_tokens"):
        row[name] += found[name]
      row["discarded"].update(found["discarded"])
  for row in total.values():
    row["discarded"] = dict(sorted(row["discarded"].items()))
  return {stage: total[stage] for stage in STAGES if stage in total}
