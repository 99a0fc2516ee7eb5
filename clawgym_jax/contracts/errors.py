"""One error for what a person can mend, and the check every record uses.

`UserError` is for whatever the person who runs a command can act upon: its
message says what happened and what to do. The command line prints it alone,
without a traceback, and exits with a status other than 0.
"""

from __future__ import annotations


class UserError(Exception):
  """What happened and what to do, in words for the person at the keyboard."""


class RecordError(ValueError):
  """A record that breaks its contract: where it came from and what is wrong."""


def require(condition: bool, message: str) -> None:
  """Raises `RecordError(message)` unless `condition` holds."""
  if not condition:
    raise RecordError(message)
