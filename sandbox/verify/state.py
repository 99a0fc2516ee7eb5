"""What an attempt left for its checks. Knows nothing of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class State:
  """The end of one attempt.

  Attributes:
    snapshot: the workspace, see `Sandbox.snapshot`.
    transcript: OpenAI messages.
    reports: what the services said, see `Sandbox.reports`.
  """

  snapshot: bytes
  final_message: str = ""
  transcript: Sequence[dict[str, Any]] = ()
  reports: Sequence[dict[str, Any]] = ()
