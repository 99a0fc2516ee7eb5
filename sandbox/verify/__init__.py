"""Judging an attempt: the task's checks, in a fresh sandbox, on a copy.

See `verify.verify`; the outcome is scored, or unscored with its cause.
"""

from sandbox.verify.checks import verify

__all__ = ["verify"]
