"""Many attempts at once.

  attempt    makes one
  job        one to be made, as plain values that go anywhere
  executor   who makes them: this process, worker processes, nodes of Ray
  driver     claims attempts from a pool, has them made, completes them
  run        a whole run in a folder
  figures    how fast it was
"""

from sandbox.fleet.attempt import AttemptResult, attempt_task, grade_with
from sandbox.fleet.driver import run_attempts
from sandbox.fleet.run import RunSettings, roll_out

__all__ = [
    "AttemptResult",
    "RunSettings",
    "attempt_task",
    "grade_with",
    "roll_out",
    "run_attempts",
]
