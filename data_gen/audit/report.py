"""What an audit found, over all its tasks: the counts and the attack table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from data_gen.audit.shares import missed, shares, with_rubric
from sandbox.harnesses import ADVERSARIES

Verdicts = Mapping[str, dict[str, Any]]
_HIGH = (0.3, 0.5)  # what an attack should never get, and what trains a model


def figures(verdicts: Verdicts) -> dict[str, Any]:
  """The parts of audit.json that sum up its tasks, rejected ones among them."""
  tried = [v for v in verdicts.values() if "mutants" in v]
  rejected = [v["causes"] for v in verdicts.values() if v["verdict"] == "rejected"]
  found = {
      "counts": dict(sorted(Counter(v["verdict"] for v in verdicts.values()).items())),
      "causes": dict(Counter(kind_of(c[0]) for c in rejected if c).most_common()),
      "attacks": table(tried),
      "mutation": {
          verdict: _mutation([v for v in tried if v["verdict"] == verdict])
          for verdict in ("admitted", "rejected")
      },
      "over_other_records": sum(v["reseeded"] for v in tried),
      "similarity": _spread(verdicts, "nearest"),
      "meaning": _spread(verdicts, "meant"),
      "shares": shares(verdicts),
  }
  return {**found, "missed": missed(found)}


def _spread(verdicts: Verdicts, kind: str) -> dict[str, float]:
  """How near the nearest other task of each is, over those that it is known of."""
  near = sorted(v[kind][0] for v in verdicts.values() if kind in v)
  return {
      name: near[min(len(near) - 1, int(share * len(near)))]
      for name, share in (("median", 0.5), ("p99", 0.99), ("highest", 1.0))
      if near
  }


def _mutation(tried: list[dict[str, Any]]) -> dict[str, Any]:
  """How many wrong edits lost reward, of those tasks of which any were judged."""
  judged = [v for v in tried if v["mutants"]]
  mutants = sum(v["mutants"] for v in judged)
  survived = Counter(s.rpartition(": ")[2] for v in judged for s in v["survivors"])
  return {
      "tasks": len(judged),
      "mutants": mutants,
      "killed": mutants - survived.total(),
      "kill_rate": round(1 - survived.total() / mutants, 4) if mutants else None,
      "fewest_of_a_task": min((v["mutants"] for v in judged), default=0),
      "survivors": dict(survived.most_common(20)),
  }


def table(tried: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
  """What each adversary, and doing nothing, got of the tasks where it is not `idle`."""
  rows = {}
  given = list(tried)
  for name in ("null", *ADVERSARIES):
    scores = [v["attacks"].get(name, 0.0) for v in given if name not in v["idle"]]
    rows[name] = {
        "tasks": len(scores),
        "mean": round(sum(scores) / len(scores), 5) if scores else 0.0,
        "highest": max(scores, default=0.0),
        "above_0": sum(s > 0 for s in scores),
        **{f"from_{high}": sum(s >= high for s in scores) for high in _HIGH},
    }
  return rows


def printed_table(rows: dict[str, dict[str, float]]) -> str:
  """The attack table as text."""
  lines = [("attack", "tasks", "mean", "highest", "above 0", "from 0.3", "from 0.5")]
  lines += [
      (name, str(row["tasks"]), f"{row['mean']:.5f}", f"{row['highest']:g}",
       str(row["above_0"]), *(str(row[f"from_{high}"]) for high in _HIGH))
      for name, row in rows.items()
  ]  # fmt: skip
  return "\n".join(
      "".join(cell.rjust(10) if i else cell.ljust(18) for i, cell in enumerate(line))
      for line in lines
  )


def printed(found: dict[str, Any]) -> str:
  """The figures as text for a person."""
  lines = [printed_table(found["attacks"])]
  for verdict, mutation in found["mutation"].items():
    if mutation["mutants"]:
      lines.append(
          f"{verdict}: {mutation['killed']} of {mutation['mutants']} wrong edits lose"
          f" reward ({mutation['kill_rate']:.2%}); at least"
          f" {mutation['fewest_of_a_task']} were made of a task"
      )
  lines.append(f"{found['over_other_records']} solutions also run over other records")
  if found["shares"]:
    lines += printed_shares(found["shares"])
  for kind, what in (("similarity", "its words"), ("meaning", "its meaning")):
    if near := found[kind]:
      lines.append(
          f"nearest other request by {what}: median {near['median']:.2f},"
          f" p99 {near['p99']:.2f}, highest {near['highest']:.2f}"
      )
  lines += [f"the set misses a goal: {said}" for said in found["missed"]]
  lines += [f"rejected, {kind}: {count}" for kind, count in found["causes"].items()]
  return "\n".join(lines)


def printed_shares(found: dict[str, Any]) -> list[str]:
  """What the admitted tasks are, as text."""
  lines = [f"{found['rubrics']} tasks ({with_rubric(found):.1%}) have a rubric, too"]
  for name, what in (("turns", "user turns"), ("hazards", "hazard")):
    counts = ", ".join(f"{n} with {value}" for value, n in found[name].items())
    lines.append(f"admitted by {what}: {counts}")
  lines.append(
      f"{found['families']} families, the largest {found['largest_family']:.1%} of the"
      f" tasks, the largest category {found['largest_category']:.1%}; a solution has"
      f" {found['median_calls']:g} calls and {found['median_tools']:g} tools (median);"
      f" {found['from_3_inputs']:.0%} of the tasks need three input files or more"
  )
  return lines


def kind_of(cause: str) -> str:
  """A cause without what is of one task: numbers, names, lists."""
  return re.sub(r"\s*([\[('\"]|\d).*", "", cause.partition(":")[0]).strip()
