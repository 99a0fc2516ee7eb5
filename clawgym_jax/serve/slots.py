"""Which request sits in which cache row, and what of its prefix is already there.

Each slot is one row of the KV cache; the token of position p has its key and
value at place p. Per slot, the first `filled` places hold the KV of the first
`filled` of `tokens`, computed with the current weights, whether a request runs
in the slot or has left it. A request may decode once `filled` reaches `need`,
the position of its last token. Plain numpy, owned by one thread; no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clawgym_jax.serve.requests import Request

_WORTH_WAITING = 16  # tokens; for less, only where nothing is left to prefill
_CALL_COST = 16  # tokens that a prefill call costs on top of its own


@dataclass(frozen=True)
class Copy:
  """Put the first `length` places of row `source` into row `target`."""

  source: int
  target: int
  length: int


@dataclass(frozen=True)
class Prefill:
  """One prefill call.

  Attributes:
    slots: int32 [rows], all different; rows beyond the real ones are padding.
    tokens, positions: int32 [rows, width]; padding stands at the last place.
    counts: real tokens of each real row; shorter than `slots` with padding.
  """

  slots: np.ndarray
  tokens: np.ndarray
  positions: np.ndarray
  counts: tuple[int, ...]


class Slots:
  """`count` rows of `length` places, the last of which is for padding."""

  def __init__(self, count: int, length: int):
    self.count = count
    self.length = length
    self.tokens = np.zeros((count, length), np.int32)
    self.filled = np.zeros(count, np.int64)
    self.need = np.zeros(count, np.int64)
    self.requests: list[Request | None] = [None] * count
    self._used = np.zeros(count, np.int64)  # when its request came or left
    self._clock = 0

  def free(self) -> list[int]:
    return [slot for slot in range(self.count) if self.requests[slot] is None]

  def running(self) -> list[int]:
    return [slot for slot in range(self.count) if self.requests[slot] is not None]

  def pending(self) -> list[int]:
    """Slots whose prompt is not wholly in the cache, first come first."""
    slots = [s for s in self.running() if self.filled[s] < self.need[s]]
    return sorted(slots, key=lambda slot: self._used[slot])

  def decodable(self) -> list[int]:
    return [s for s in self.running() if self.filled[s] >= self.need[s]]

  def place(self, request: Request) -> tuple[int, Copy | None] | None:
    """Gives `request` a free slot; None when there is none.

    A slot that loses nothing is taken first (an empty one, or one whose whole
    content the prompt extends), else the least recently used. Where another
    slot shares a longer prefix, the answer holds the copy to make.
    """
    free = self.free()
    if not free:
      return None
    prompt = request.prompt
    common = self._common(prompt[:-1], self.filled)
    extends = [s for s in free if common[s] == self.filled[s]]
    if extends:
      slot = max(extends, key=lambda s: (common[s], -self._used[s]))
    else:
      slot = min(free, key=lambda s: self._used[s])
    copy = self._better_source(slot, common, int(common[slot]))
    self.tokens[slot, : len(prompt)] = prompt
    self.filled[slot] = copy.length if copy else common[slot]
    self.need[slot] = len(prompt) - 1
    self.requests[slot] = request
    request.reused_tokens = int(self.filled[slot])
    self._touch(slot)
    return slot, copy

  def share(self) -> list[Copy]:
    """Copies to make because a slot has gained a prefix that another awaits."""
    copies = []
    for slot in self.pending():
      wanted = self.tokens[slot, : self.need[slot]]
      common = self._common(wanted, self.filled)
      copy = self._better_source(slot, common, int(self.filled[slot]))
      if copy:
        copies.append(copy)
        self.requests[slot].reused_tokens += copy.length - int(self.filled[slot])
        self.filled[slot] = copy.length
    return copies

  def next_prefill(self, shapes: Sequence[tuple[int, int]]) -> Prefill | None:
    """The next call, of the [rows, width] that wastes least; None if none is due.

    A slot waits for an earlier one that is about to compute its prefix.
    """
    ready = self._ready()
    if not ready:
      return None
    left = [int(self.need[slot] - self.filled[slot]) for slot in ready]

    def useful(shape: tuple[int, int]) -> float:
      rows, width = shape
      tokens = sum(min(width, count) for count in left[:rows])
      return tokens / (rows * width + _CALL_COST)

    rows, width = max(shapes, key=useful)
    chosen = ready[:rows]
    others = [s for s in range(self.count) if s not in chosen]
    tokens = np.zeros((rows, width), np.int32)
    positions = np.full((rows, width), self.length - 1, np.int32)
    counts = []
    for row, slot in enumerate(chosen):
      start = int(self.filled[slot])
      stop = min(start + width, int(self.need[slot]))
      counts.append(stop - start)
      tokens[row, : stop - start] = self.tokens[slot, start:stop]
      positions[row, : stop - start] = np.arange(start, stop)
    slots = np.array(chosen + others[: rows - len(chosen)], np.int32)
    return Prefill(slots, tokens, positions, tuple(counts))

  def prefilled(self, call: Prefill) -> None:
    """Records that `call` was made."""
    for slot, count in zip(call.slots, call.counts):
      self.filled[slot] += count

  def extend(self, slot: int, tokens: list[int]) -> None:
    """Records decode steps: the last token was read, `tokens` were sampled."""
    start = int(self.need[slot]) + 1
    self.tokens[slot, start : start + len(tokens)] = tokens
    self.need[slot] += len(tokens)
    self.filled[slot] = self.need[slot]

  def release(self, slot: int) -> None:
    """Frees the slot; its content stays for others to reuse."""
    self.requests[slot] = None
    self.need[slot] = 0
    self._touch(slot)

  def invalidate(self) -> None:
    """Forgets all KV: the weights have changed."""
    self.filled[:] = 0

  def _ready(self) -> list[int]:
    """Pending slots that gain nothing by waiting for an earlier one."""
    ready: list[int] = []
    pending = self.pending()
    for index, slot in enumerate(pending):
      wanted = self.tokens[slot, : self.need[slot]]
      planned = self._common(wanted, self.need)
      most = max((planned[earlier] for earlier in pending[:index]), default=0)
      gain = most - self.filled[slot]
      if gain < _WORTH_WAITING and not (gain > 0 and most == self.need[slot]):
        ready.append(slot)
    return ready

  def _touch(self, slot: int) -> None:
    self._clock += 1
    self._used[slot] = self._clock

  def _common(self, wanted: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Per slot, how many of its first `limits` tokens equal those wanted; [count]."""
    differs = self.tokens[:, : len(wanted)] != wanted
    first = np.where(
        differs.any(axis=1), differs.argmax(axis=1), len(wanted)
    ) if len(wanted) else np.zeros(self.count, np.int64)
    return np.minimum(first, limits)

  def _better_source(self, slot: int, common: np.ndarray, have: int) -> Copy | None:
    source = int(np.argmax(common))
    if common[source] <= have:
      return None
    return Copy(source, slot, int(common[source]))
