"""Judging an attempt: the task's checks, in a fresh sandbox, on a copy.

`verify` judges one state, `verify_many` and `Verifier` many of one task, `Verifiers`
those of any tasks as they come, `verify_clawgym` by a reward package of ClawGym.
The outcome is scored, or unscored with its cause.
"""

from sandbox.verify.clawgym import verify_clawgym
from sandbox.verify.imported import verify
from sandbox.verify.many import Verifier, verify_many
from sandbox.verify.state import State
from sandbox.verify.verifiers import Verifiers

__all__ = [
    "State",
    "Verifier",
    "Verifiers",
    "verify",
    "verify_clawgym",
    "verify_many",
]
