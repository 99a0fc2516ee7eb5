"""Many attempts at once; see `attempt` for one and `workers` for many."""

from sandbox.fleet.attempt import AttemptResult, attempt_task, grade_with

__all__ = ["AttemptResult", "attempt_task", "grade_with"]
