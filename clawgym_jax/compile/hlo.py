"""Collectives of a compiled program, out of the text of its optimised HLO.

The text is that of one device. A loop's body counts as often as the loop runs,
which its condition says. Volume is what a device has to receive at least, by the
algorithms that a torus allows: of a gathered or scattered array all but its own
share, of an all-reduce twice that.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field

_WIDTHS = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2}
_WIDTHS |= {"s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
_WIDTHS |= {"f8e4m3fn": 1, "f8e5m2": 1}
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (.*?) ([\w\-]+)\((.*)$")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_CALLED = re.compile(r"(calls|to_apply|body|condition)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_CONSTANT = re.compile(r"= s32\[\][^ ]* constant\((\d+)\)")
_LISTED = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_COUNTED = re.compile(r"replica_groups=\[\d+,(\d+)\]")
_NAMED = re.compile(r"replica_groups=mesh\[([^\]]*)\] ?\{([^}]*)\}")
_WHOLE = "whole "  # in front of a result of all that is scattered
KINDS = (
    "all-gather",
    "reduce-scatter",
    "all-reduce",
    "all-to-all",
    "collective-permute",
)


@dataclass
class Traffic:
  """Of one kind of collective: how many, and bytes that a device receives."""

  count: float = 0.0
  bytes: float = 0.0


@dataclass
class _Computation:
  lines: list[str] = field(default_factory=list)
  found: list[tuple[str, float]] = field(default_factory=list)
  calls: list[tuple[str, str, str]] = field(default_factory=list)
  """How something is called, its name and the condition of a loop."""


def collectives(text: str, devices: int) -> dict[str, Traffic]:
  """Each kind's traffic in one run of a program on `devices` devices."""
  computations, entry = _parsed(text, devices)
  total: dict[str, Traffic] = defaultdict(Traffic)

  def walk(name: str, times: float) -> None:
    for kind, volume in computations[name].found:
      total[kind].count += times
      total[kind].bytes += times * volume
    for how, called, condition in computations[name].calls:
      if called in computations:
        repeats = _trips(computations, condition) if how == "body" else 1
        walk(called, times * repeats)

  if entry:
    walk(entry, 1.0)
  return dict(total)


def _parsed(text: str, devices: int) -> tuple[dict[str, _Computation], str]:
  computations: dict[str, _Computation] = {}
  name = entry = ""
  for line in text.splitlines():
    start = _COMPUTATION.match(line)
    if start:
      name = start[2]
      entry = name if start[1] else entry
      computations[name] = _Computation()
      continue
    found = _INSTRUCTION.match(line)
    if not name or not found:
      continue
    here = computations[name]
    here.lines.append(line)
    result, operation, rest = found.groups()
    kind = operation.removesuffix("-start")
    if kind in KINDS:
      if kind == "all-reduce" and name.startswith("all-reduce-scatter"):
        kind = "reduce-scatter"  # as XLA on TPUs fuses one with the slice it wants
        result = _WHOLE + result
      here.found.append((kind, _volume(kind, operation, result, rest, devices)))
    called = dict(_CALLED.findall(rest))
    for how in ("calls", "body"):
      if how in called:
        here.calls.append((how, called[how], called.get("condition", "")))
    if operation in ("call", "async-start") and "to_apply" in called:
      here.calls.append(("calls", called["to_apply"], ""))
    branches = _BRANCHES.search(rest)
    if branches:  # as if all were taken
      names = re.findall(r"[\w.\-]+", branches[1])
      here.calls += [("calls", branch, "") for branch in names]
  return computations, entry


def _volume(kind: str, operation: str, result: str, rest: str, devices: int) -> float:
  """Bytes that a device receives in one such operation."""
  size = _bytes(result)
  started = operation.endswith("-start")
  if kind == "collective-permute":
    return size / 2 if started else size  # of a start: what is sent and what arrives
  group = _group(rest) or devices
  share = (group - 1) / group
  if kind == "all-gather" and started:
    size *= group / (group + 1)  # its operand is named too
  if kind == "reduce-scatter" and not result.startswith(_WHOLE):
    size *= group / (group + 1) if started else group  # the result is a share
  if kind == "all-reduce":
    return 2 * share * size
  return share * size


def _group(rest: str) -> int:
  listed = _LISTED.search(rest)
  if listed:
    return len(listed[1].split(","))
  counted = _COUNTED.search(rest)
  if counted:
    return int(counted[1])
  named = _NAMED.search(rest)
  if not named:
    return 0
  sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
  return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", named[2]))


def _bytes(result: str) -> float:
  """Of the arrays of a result; scalars are an asynchronous operation's own."""
  return float(sum(
      math.prod(int(size) for size in sizes.split(",")) * _WIDTHS.get(dtype, 4)
      for dtype, sizes in _ARRAY.findall(result)
      if sizes
  ))


def _trips(computations: dict[str, _Computation], condition: str) -> int:
  """How often a loop runs: the one number that its condition compares with."""
  seen, names = [], [condition]
  while names:
    here = computations.get(names.pop())
    if here is not None:
      seen += [int(number) for line in here.lines for number in _CONSTANT.findall(line)]
      names += [called for _, called, _ in here.calls]
  return max(seen, default=1)
