"""Plain sentences on what a comparison does and does not show."""

from __future__ import annotations

import decimal

from eval.stats import Difference

FEW_TASKS = 20  # below this the bootstrap's interval is known to be too narrow
_TENTH = decimal.Decimal("0.1")


def conclude(before: str, after: str, difference: Difference) -> str:
  """One or two sentences, in points (score x 100)."""
  if difference.mean is None or difference.interval is None:
    return (
        f"{after} and {before} can't be compared: {_count(difference.tasks)} scored"
        " in both, and an interval needs at least two."
    )
  points = 100 * difference.mean
  low, high = 100 * difference.interval.low, 100 * difference.interval.high
  span = f"95 % interval {_shown(low)} to {_shown(high)}"
  if difference.same == difference.tasks:
    return (
        f"{after} and {before} scored the same on every one of the"
        f" {_count(difference.tasks)} that both have scores for."
    )
  if low > 0:
    text = f"{after} gained {_shown(points)} points over {before} ({span})."
  elif high < 0:
    text = f"{after} lost {_shown(-points)} points against {before} ({span})."
  elif points >= 0:
    text = (
        f"{after} gained nothing measurable over {before}: difference"
        f" {_shown(points)} points, {span}."
    )
  else:
    text = (
        f"{after} did not change measurably against {before}: difference"
        f" {_shown(points)} points, {span}."
    )
  if difference.tasks < FEW_TASKS:
    text += (
        f" Only {_count(difference.tasks)} could be compared, so the interval is"
        " rather too narrow."
    )
  if difference.left_out:
    text += (
        f" {_count(difference.left_out).capitalize()} with scores in one run only"
        f" {'is' if difference.left_out == 1 else 'are'} left out."
    )
  return text


def _shown(points: float) -> str:
  """One decimal, rounded as the page's script rounds, with a true minus sign."""
  value = decimal.Decimal(points).quantize(_TENTH, decimal.ROUND_HALF_UP)
  return str(abs(value) if not value else value).replace("-", "\N{MINUS SIGN}")


def _count(tasks: int) -> str:
  return f"{tasks} task" if tasks == 1 else f"{tasks} tasks"
