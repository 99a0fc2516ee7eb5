"""How many programs XLA compiled, by thread, those loaded from its cache included."""

from __future__ import annotations

import functools
import threading
from collections import Counter

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"
_by_thread: Counter[int] = Counter()


class CompileCount:
  """`count`: compiles in the thread that made this, from then on."""

  def __init__(self) -> None:
    _listen()
    self._thread = threading.get_ident()
    self._before = _by_thread[self._thread]

  @property
  def count(self) -> int:
    return _by_thread[self._thread] - self._before


@functools.cache
def _listen() -> None:
  """Once a process: a listener stays for good."""
  jax.monitoring.register_event_duration_secs_listener(_record)


def _record(event: str, seconds: float, **_: object) -> None:
  del seconds
  if event == _EVENT:
    _by_thread[threading.get_ident()] += 1
