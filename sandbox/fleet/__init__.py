"""Many attempts at once: `attempt` makes one, `workers` many, `run` a whole run."""

from sandbox.fleet.attempt import AttemptResult, attempt_task, grade_with
from sandbox.fleet.run import RunSettings, roll_out
from sandbox.fleet.workers import run_attempts

__all__ = [
    "AttemptResult",
    "RunSettings",
    "attempt_task",
    "grade_with",
    "roll_out",
    "run_attempts",
]
