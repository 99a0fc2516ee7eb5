"""What the operations of a template cost, and what a rendering may still spend.

Two accounts: steps, which are turns, calls and elements of lists that were gone
through, and characters, which are text that was read or made and values that
were looked into. An operation pays by the sizes of what it is given, so no single one can
take long. The count is of what a template does and the same on every machine.

Not covered: numbers made up so that their hashes collide, as keys of a mapping;
and reading a template's source, which its length alone bounds.
"""

from __future__ import annotations

import contextlib
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from contextvars import ContextVar
from typing import Any

import jinja2.utils

_ELEMENTS = 8  # that are gone through in the time of one step
_VALUE = 64  # characters that a value counts for, beside the text in it
_TEXT = 8  # characters that a string counts for, beside its own
_SAME = 64  # characters that are compared in the time in which one is made
_HOLDERS = (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)


class Exceeded(Exception):
  """The rendering went beyond its bounds."""


class Budget:
  """What one rendering may still do."""

  def __init__(self, steps: int, characters: int):
    self._steps = steps
    self._characters = characters

  def step(self, elements: int = 0) -> None:
    """One operation that goes through so many elements."""
    self._steps -= 1 + elements // _ELEMENTS
    if self._steps < 0:
      raise Exceeded("too many turns of loops and calls")

  def made(self, characters: int) -> None:
    self._characters -= characters
    if self._characters < 0:
      raise Exceeded("too many characters")

  def weigh(self, value: Any, times: int = 1, share: int = 1) -> None:
    """Counts all that `value` holds, `times` over; of text one character in `share`."""
    stack = [value]
    while stack:
      value = stack.pop()
      if isinstance(value, str):
        self.made(times * (_TEXT + len(value) // share))
        continue
      self.made(times * _VALUE)
      if isinstance(value, int) and value.bit_length() > 1024:
        raise Exceeded("a number beyond 1024 bits")
      if isinstance(value, dict):
        stack += [*value.keys(), *value.values()]
      elif isinstance(value, _HOLDERS):
        stack += value
      elif isinstance(value, jinja2.utils.Namespace):
        stack += object.__getattribute__(value, "_Namespace__attrs").values()

  def compare(self, left: Any, right: Any) -> None:
    """Counts `left == right`, or which of them is greater."""
    self.step()
    if isinstance(left, str) and isinstance(right, str):
      self.made(min(len(left), len(right)) // _SAME)
    elif isinstance(left, (dict, *_HOLDERS)) and isinstance(right, (dict, *_HOLDERS)):
      self.weigh(min(left, right, key=len), share=_SAME)

  def search(self, value: Any, container: Any) -> None:
    """Counts `value in container`."""
    self.step()
    self.weigh(value)
    if isinstance(container, str):
      self.made(len(container))
    elif isinstance(container, range):
      self.made(_VALUE * len(container))
    elif isinstance(container, Iterator):
      raise Exceeded("a search in a loop's own turns")
    elif not isinstance(container, (dict, KeysView)):
      self.weigh(container)


_budget: ContextVar[Budget] = ContextVar("budget")


@contextlib.contextmanager
def bounded(budget: Budget) -> Iterator[None]:
  """What templates do meanwhile is counted against `budget`."""
  token = _budget.set(budget)
  try:
    yield
  finally:
    _budget.reset(token)


def running() -> Budget | None:
  """The budget of this rendering; None while a template is compiled.

  What asks it for more then fails, which keeps Jinja from working things out ahead.
  """
  return _budget.get(None)


def size(value: Any) -> int:
  """Characters of all strings in plain data, and one for everything else."""
  if isinstance(value, str):
    return len(value) + 1
  if isinstance(value, dict):
    return 1 + sum(size(k) + size(v) for k, v in value.items())
  if isinstance(value, (list, tuple)):
    return 1 + sum(map(size, value))
  return 1
