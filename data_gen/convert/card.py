"""A dataset card: README.md with the figures of a set, and its plots beside it.

Every figure is counted from the tasks themselves; the same set gives the same
card. Of what runs have shown it says only what an audit of the source wrote down
(audit.json) of these very tasks.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.files import write_atomic
from clawgym_jax.contracts.trajectory import CODE_SHARE, RUBRIC_SHARE
from data_gen.convert import plots
from data_gen.convert.contents import Contents
from data_gen.convert.foreign import GENERATOR
from data_gen.convert.losses import Losses
from data_gen.taxonomy import CATEGORY_OF

_DRAWN = (
    "scenario category", "operation category", "operation", "kind of input file",
    "tool of the solution",
)
_LISTED = (
    "scenario category", "macro category", "operation category", "split", "hazard",
    "verification", "generator",
)
_SHOWN = 30  # rows of a plot; the rest is one row
_SMALL = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 30, 50, 100)
_WORDS = (0, 10, 20, 40, 60, 80, 100, 150, 200, 300, 500, 1000)
_BYTES = (0, *(1 << power for power in range(9, 24)))
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))


@dataclass
class Statistics:
  """What is counted: tasks by what they are, and one number a task; those with a
  solution, and those that an audit admitted as they are."""

  count: int = 0
  solved: int = 0
  admitted: int = 0
  by: dict[str, Counter[str]] = field(default_factory=dict)
  numbers: dict[str, list[int]] = field(default_factory=dict)

  def add(self, contents: Contents, hashes: Mapping[str, str]) -> None:
    """Counts a task; `hashes` are those of the tasks that were admitted, by name."""
    record = contents.record
    self.count += 1
    self.solved += any(turn["calls"] for turn in _turns(contents))
    own = record.get("provenance", {}).get("content_hash")
    self.admitted += own is not None and hashes.get(contents.name) == own
    inputs = contents.below("workspace")
    said = [record["instruction"]]
    said += [turn["text"] for turn in record.get("followups", ())]
    for name, values in {
        "scenario category": [record["category"]],
        "split": [record["split"]],
        "family": [record["family"]],
        "macro category": [record.get("macro_category")],
        "operation category": map(CATEGORY_OF.get, record["operations"]),
        "operation": record["operations"],
        "kind of input file": {_kind(path) for path in inputs},
        "tool of the solution": {call["name"] for call in _calls(contents)},
        "hazard": [record.get("hazard", "none")],
        "verification": [_verification(contents)],
        "generator": [record.get("provenance", {}).get("generator", "unknown")],
    }.items():
      counts = self.by.setdefault(name, Counter())
      counts.update({value or "none" for value in values})
    for name, value in {
        "calls of the solution": len(_calls(contents)),
        "input files": len(inputs),
        "bytes of the workspace": sum(map(len, inputs.values())),
        "words of the instruction": sum(len(text.split()) for text in said),
        "user turns": len(said),
    }.items():
      self.numbers.setdefault(name, []).append(value)


def write(
    target: Path, tasks: Iterable[Contents], losses: Losses, *, source: Path
) -> int:
  found, hashes = Statistics(), _admitted(source)
  for contents in tasks:
    found.add(contents, hashes)
  for name, svg in _plots(found).items():
    write_atomic(target.parent / "plots" / name, svg)
  write_atomic(target, render(found))
  return found.count


def render(found: Statistics) -> str:
  """The text of the card."""
  by = found.by
  sections = [
      _front(found),
      "# ClawGym-SynData",
      f"{found.count:,} tasks for agents that work on files with tools: a request, a"
      " workspace, checks that score what the agent leaves, and in"
      f" {found.solved:,} a reference solution.",
      _audited(found),
      f"{_hybrid(found):.0%} of them are hybrid: what code can't see is judged by a"
      f" rubric, and the score is {CODE_SHARE} · code + {RUBRIC_SHARE} · rubric. The"
      " others are scored by code alone.",
      "## In figures",
      _table(
          ("a task has", "least", "median", "mean", "most"),
          [
              (name, f"{min(v):,}", f"{statistics.median(v):,g}",
               f"{statistics.fmean(v):,.1f}", f"{max(v):,}")
              for name, v in found.numbers.items()
          ],
      ),
      _table(
          ("there are", "different", "largest share"),
          [
              (name, f"{len(counts):,}",
               f"{counts.most_common(1)[0][1] / found.count:.1%}")
              for name, counts in by.items() if counts
          ],
      ),
  ]  # fmt: skip
  sections += [f"![{n.removesuffix('.svg')}](plots/{n})" for n in _plots(found)]
  for name in _LISTED:
    rows = [(value, f"{n:,}") for value, n in _ordered(by.get(name, Counter()))]
    sections.append(_table((name, "tasks"), rows))
  sections += [
      "## What a task is",
      "A directory, or the tar of one as a record: `task.json`, `workspace/` (what the"
      " agent sees), `checks/` (never visible to it), `rubric.json` and `solution/`"
      " where there are any.",
  ]
  return "\n\n".join(sections) + "\n"


def _front(found: Statistics) -> str:
  size = next((said for most, said in _SIZES if found.count < most), "100K<n<1M")
  foreign = found.by.get("generator", Counter())[GENERATOR]
  return "\n".join([
      "---",
      f"license: {'other' if foreign else 'apache-2.0'}",
      "language: [en]",
      "tags: [agents, tool-use, synthetic, verifiable]",
      f"size_categories: [{size}]",
      "---",
  ])


def _plots(found: Statistics) -> dict[str, str]:
  """SVG by file name."""
  drawn = {}
  for name in _DRAWN:
    rows = _ordered(found.by.get(name, Counter()))
    rest = sum(count for _, count in rows[_SHOWN:])
    rows = rows[:_SHOWN] + ([("all others", rest)] if rest else [])
    drawn[_file(name)] = plots.bars(f"Tasks by {name}", rows)
  edges = {"bytes of the workspace": _BYTES, "words of the instruction": _WORDS}
  for name, values in found.numbers.items():
    rows = plots.ranges(values, edges.get(name, _SMALL))
    drawn[_file(name)] = plots.bars(f"Tasks by {name}", rows)
  return drawn


def _file(name: str) -> str:
  return name.replace(" ", "_") + ".svg"


def _ordered(counts: Counter[str]) -> list[tuple[str, int]]:
  return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
  lines = [head, tuple("---" for _ in head), *rows]
  return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
  return text.replace("|", "\\|").replace("\n", " ")


def _kind(path: str) -> str:
  """How a file's name ends; a repository is one kind, whatever is in it."""
  path = path.lower()
  pure = PurePosixPath(path)
  if ".git" in pure.parts:
    return "git repository"
  return "".join(pure.suffixes[-2:]) if path.endswith(".tar.gz") else pure.suffix


def _verification(contents: Contents) -> str:
  return "code and rubric" if "rubric.json" in contents.files else "code"


def _hybrid(found: Statistics) -> float:
  """The share of the tasks that have a rubric."""
  hybrid = found.by.get("verification", Counter())["code and rubric"]
  return hybrid / found.count if found.count else 0.0


def _audited(found: Statistics) -> str:
  if not found.admitted:
    return (
        "None of them is known to be audited: whether the solutions score and attacks"
        " do not was not tried, or not written down where the tasks come from."
    )
  return (
      f"{found.admitted:,} of them were audited as they are (`audit.json`): the"
      " solution, run in a sandbox, scores 1 on code checks, doing nothing and every"
      " attack that was tried score 0."
  )


def _admitted(source: Path) -> dict[str, str]:
  """The content hashes of the tasks that an audit of this folder admitted."""
  try:
    tasks = json_text.parse((source / "audit.json").read_text())["tasks"]
    admitted = {n: v for n, v in tasks.items() if v["verdict"] == "admitted"}
    return {n: v["hash"].rpartition(":")[2] for n, v in admitted.items()}
  except (OSError, ValueError, LookupError, TypeError, AttributeError):
    return {}


def _turns(contents: Contents) -> list[dict[str, Any]]:
  solution = contents.files.get("solution/calls.json")
  return json_text.parse(solution)["turns"] if solution else []


def _calls(contents: Contents) -> list[dict[str, Any]]:
  return [call for turn in _turns(contents) for call in turn["calls"]]
