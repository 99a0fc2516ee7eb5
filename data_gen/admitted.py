"""Fills a folder until as many tasks as were asked for are admitted.

Tasks 0 … N - 1 are made and judged (`data_gen.audit`); for those that are rejected
as many after them are, until N are admitted. So the same command makes the same
set, and continues after any end; a task that was rejected is not made again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clawgym_jax.contracts.errors import UserError

_MOST_PLANNED = 2  # times as many as are wanted


def fill(
    wanted: int,
    make: Callable[[int], dict[str, Any]],
    audit: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
  """Has `make` the first so many tasks and `audit` judge all there are; both counts.

  `UserError` where half of what is made is rejected.
  """
  planned = wanted
  while True:
    made = make(planned)
    judged = audit()
    lacking = wanted - judged["admitted"]
    if lacking <= 0:
      return {**made, "audit": judged}
    planned += lacking
    if planned > _MOST_PLANNED * wanted:
      raise UserError(
          f"only {judged['admitted']} of {planned - lacking} tasks are admitted: see"
          " the causes in audit.json"
      )
    print(f"{lacking} tasks more in place of those rejected")
