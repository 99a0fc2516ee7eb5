"""Operations one after another on one source, and perhaps a second file.

A step must do something: where most of a table's rows come through unchanged,
handing in the input would be nearly right, so such a chain is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from data_gen.compose.operations.registry import OPERATIONS, Operation, Step
from data_gen.compose.setting import Setting
from data_gen.compose.table import Table

_MOST_KEPT = 0.7  # of the rows, by a step or by all of them


@dataclass(frozen=True)
class Chain:
  """What a source holds and what is done with it.

  `second` is the second file's table, `stem` its name, `joining` the number of
  the step that needs it.
  """

  source: Table
  steps: tuple[Step, ...]
  second: Table | None = None
  stem: str = ""
  joining: int = -1

  @property
  def result(self) -> Table:
    return self.steps[-1].table

  @property
  def ordered(self) -> bool:
    return any(step.ordered for step in self.steps)


def needs_second(names: Sequence[str]) -> bool:
  """Whether one of these operations needs a second file."""
  return any(OPERATIONS[name].second for name in names)


def may_follow(names: Sequence[str]) -> bool:
  """Whether these operations make a chain: groups and what mends a source each
  have their place, there is one second file at most, and not only an order."""
  chosen = [OPERATIONS[name] for name in names]
  return (
      0 < len(chosen) == len(set(names))
      and all(o.shape == "rows" for o in chosen[:-1])
      and not any(o.prepare for o in chosen[1:])
      and sum(o.second is not None for o in chosen) < 2
      and list(names) != ["sort_by"]
  )


def chain(
    names: Sequence[str],
    setting: Setting,
    table: Table,
    order: Callable[[Table], Table] = lambda table: table,
) -> Chain | None:
  """The operations of these names on `table`, whose rows the source keeps in
  `order`; None where they find no columns, or nothing to do."""
  if not may_follow(names):
    raise ValueError(f"no chain of operations: {', '.join(names)}")
  chosen = [OPERATIONS[name] for name in names]
  source: Table | None = order(table)
  if chosen[0].prepare:
    source = chosen[0].prepare(setting, source)
  if source is None:
    return None
  source = order(source)
  joining = next((o for o in chosen if o.second), None)
  second = joining.second(setting, source) if joining else None
  if joining and (second is None or not second.rows):
    return None
  steps: list[Step] = []
  for one in chosen:
    before = steps[-1].table if steps else source
    step = _step(one, setting, before, second)
    if step is None or not step.table.rows:
      return None
    if not step.arranges and _idle(before, step.table):
      return None
    steps.append(step)
  if _idle(source, steps[-1].table):
    return None
  if joining is None:
    return Chain(source, tuple(steps))
  at = chosen.index(joining)
  return Chain(source, tuple(steps), second, joining.stem, at)


def _step(
    one: Operation, setting: Setting, table: Table, second: Table | None
) -> Step | None:
  return one.apply(setting, table, second) if one.second else one.apply(setting, table)


def _idle(before: Table, after: Table) -> bool:
  if before.names != after.names:
    return False
  shared = Counter(before.rows) & Counter(after.rows)
  return shared.total() > _MOST_KEPT * max(len(before.rows), len(after.rows))
