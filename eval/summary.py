"""What a run of a suite amounts to, with its denominator always beside it.

Every planned attempt is in exactly one of `scored`, `truncated`, `unscored`,
so the three add up to `planned` whatever went wrong. `unscored` attempts enter
no mean, no rate and no interval; an attempt that was never made is unscored
too, with that cause. An attempt whose rubric nobody has judged has no score either:
it counts where its checks put it and in `rubrics_to_judge`, and enters `code` alone,
which is the same figure over what the checks gave.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from clawgym_jax.contracts.errors import require
from clawgym_jax.contracts.task import Task
from clawgym_jax.contracts.trajectory import Trajectory
from eval import stats

_SHOWN = 160  # characters of what a user says
NOT_ATTEMPTED = "not attempted"
_SOLVED = 1.0 - 1e-9  # a weighted mean of ones may miss 1 by rounding


def suite_hash(tasks: Iterable[Task]) -> str:
  """One hash over the contents of all tasks, in any order."""
  digest = hashlib.sha256()
  for line in sorted(f"{t.id}\0{t.provenance.get('content_hash')}\n" for t in tasks):
    digest.update(line.encode())
  return digest.hexdigest()


def by_sample(
    trajectories: Iterable[Trajectory], tasks: list[Task], samples: int
) -> dict[tuple[str, int], Trajectory]:
  """The trajectory of each (task id, sample index) that has one."""
  known = {task.id for task in tasks}
  result: dict[tuple[str, int], Trajectory] = {}
  for new in trajectories:
    require(
        new.task_id in known and 0 <= new.sample_index < samples,
        f"trajectory {new.id} is sample {new.sample_index} of task"
        f" {new.task_id}, which was not planned",
    )
    slot = (new.task_id, new.sample_index)
    require(slot not in result, f"trajectory {new.id} counts sample {slot} again")
    result[slot] = new
  return result


def summarise(
    name: str,
    harness: str,
    tasks: list[Task],
    samples: int,
    trajectories: list[Trajectory],
) -> dict[str, Any]:
  """The contents of summary.json; see the module's docstring.

  Scores are in [0, 1]; `interval` is [low, high] at 95 % or None. `success` is
  the share of attempts with score 1, averaged over tasks; of those with a score.
  """
  made = by_sample(trajectories, tasks, samples)
  per_task = {}
  for task in tasks:
    outcomes = [made.get((task.id, i)) for i in range(samples)]
    judged = [t.outcome for t in outcomes if t and t.outcome.status != "unscored"]
    per_task[task.id] = {
        "family": task.family,
        "category": task.category,
        "difficulty": task.difficulty,
        "instruction": _said(task),
        "scores": [o.score for o in judged if o.score is not None],
        "code": [o.code for o in judged],
        "truncated": _causes(outcomes, "truncated"),
        "unscored": _causes(outcomes, "unscored"),
    }
  entries = list(per_task.values())
  return {
      "name": name,
      "harness": harness,
      "suite": {"tasks": len(tasks), "hash": suite_hash(tasks)},
      "samples": samples,
      **_figures(per_task),
      "by_cause": {
          status: dict(
              sum((Counter(e[status]) for e in entries), start=Counter()).most_common()
          )
          for status in ("truncated", "unscored")
      },
      "pass_at_k": _pass_at_k(per_task, samples),
      "families": _grouped(per_task, "family"),
      "categories": _grouped(per_task, "category"),
      "tasks": per_task,
  }


def scores(summary: dict[str, Any]) -> dict[str, list[float]]:
  """Task id to the scores of its attempts, as `stats` takes them."""
  return {task: entry["scores"] for task, entry in summary["tasks"].items()}


def _figures(per_task: dict[str, dict[str, Any]]) -> dict[str, Any]:
  values = {task: entry["scores"] for task, entry in per_task.items()}
  code = {task: entry["code"] for task, entry in per_task.items()}
  interval = _pair(stats.bootstrap_interval(values))
  solved = {t: [float(s >= _SOLVED) for s in v] for t, v in values.items()}
  rates = stats.task_means(solved)
  measured = sum(map(len, code.values()))
  truncated = sum(sum(e["truncated"].values()) for e in per_task.values())
  unscored = sum(sum(e["unscored"].values()) for e in per_task.values())
  return {
      "planned": measured + unscored,
      "scored": measured - truncated,
      "truncated": truncated,
      "unscored": unscored,
      "rubrics_to_judge": measured - sum(map(len, values.values())),
      "mean": stats.mean(values),
      "interval": interval,
      "code": {
          "mean": stats.mean(code),
          "interval": interval
          if code == values
          else _pair(stats.bootstrap_interval(code)),
      },
      "success": {
          "rate": stats.mean(solved),
          "interval": _pair(
              stats.wilson_interval(min(sum(rates.values()), len(rates)), len(rates))
          ),
          "attempts": int(sum(map(sum, solved.values()))),
      },
  }


def _grouped(per_task: dict[str, dict[str, Any]], key: str) -> dict[str, Any]:
  groups: dict[str, dict[str, Any]] = defaultdict(dict)
  for task, entry in per_task.items():
    groups[entry[key]][task] = entry
  return {
      name: {"tasks": len(group), **_figures(group)}
      for name, group in sorted(groups.items())
  }


def _pass_at_k(
    per_task: dict[str, dict[str, Any]], samples: int
) -> dict[str, dict[str, float]]:
  """For k = 1, 2, 4, …: the mean over tasks with at least k scored attempts."""
  result = {}
  k = 1
  while k <= samples:
    values = [
        stats.pass_at_k(len(s), sum(x >= _SOLVED for x in s), k)
        for s in (entry["scores"] for entry in per_task.values())
        if len(s) >= k
    ]
    if values:
      result[str(k)] = {"value": sum(values) / len(values), "tasks": len(values)}
    k *= 2
  return result


def _said(task: Task) -> str:
  """The beginning of each thing that the user says, on one line."""
  room = _SHOWN // len(task.user_turns)
  return " / ".join(turn.text[:room] for turn in task.user_turns)


def _causes(outcomes: list[Trajectory | None], status: str) -> dict[str, int]:
  causes = [t.outcome.cause for t in outcomes if t and t.outcome.status == status]
  if status == "unscored":
    causes += [NOT_ATTEMPTED for t in outcomes if t is None]
  return dict(Counter(causes))


def _pair(interval: stats.Interval | None) -> list[float] | None:
  return None if interval is None else [interval.low, interval.high]
