"""How many programs XLA compiled, those loaded from its cache included."""

from __future__ import annotations

import threading
from typing import Any

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"


class CompileCount:
  """`count`: compiles in the thread that made this, from then on."""

  def __init__(self) -> None:
    self.count = 0
    self._thread = threading.get_ident()
    jax.monitoring.register_event_duration_secs_listener(self._record)

  def _record(self, event: str, seconds: float, **_: Any) -> None:
    del seconds
    if event == _EVENT and threading.get_ident() == self._thread:
      self.count += 1
