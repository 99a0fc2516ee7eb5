"""What a caller asks of the engine and what it gets: ids, log-probs, versions.

The four columns of a `Completion` always have one length. A request that can
never succeed is `Refused` before it enters the queue, with the numbers.
"""

from __future__ import annotations

import math
import secrets
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

MAX_STOP_IDS = 8


class Refused(ValueError):
  """A request that can't succeed however often it is sent."""


@dataclass(frozen=True)
class Sampling:
  """How to sample one completion.

  Attributes:
    max_tokens: most tokens to sample; None is as many as fit.
    temperature: 0 is greedy.
    top_p: keeps the smallest set of most probable tokens with this mass.
    seed: the same seed, prompt and weights give the same tokens in any batch;
      None draws one.
    stop_ids: sampling ends with the first of these, which is kept.
  """

  max_tokens: int | None = None
  temperature: float = 1.0
  top_p: float = 1.0
  seed: int | None = None
  stop_ids: tuple[int, ...] = ()

  def __post_init__(self) -> None:
    _refuse_unless(
        self.max_tokens is None or _is_int(self.max_tokens) and self.max_tokens >= 1,
        f"max_tokens is {self.max_tokens!r}; it must be a whole number of at least 1",
    )
    _refuse_unless(
        _is_number(self.temperature) and 0 <= self.temperature <= 100,
        f"temperature is {self.temperature!r}; it must be in [0, 100]",
    )
    _refuse_unless(
        _is_number(self.top_p) and 0 < self.top_p <= 1,
        f"top_p is {self.top_p!r}; it must be in (0, 1]",
    )
    _refuse_unless(
        self.seed is None or _is_int(self.seed) and 0 <= self.seed < 2**64,
        f"seed is {self.seed!r}; it must be a whole number in [0, 2**64)",
    )
    _refuse_unless(
        len(self.stop_ids) <= MAX_STOP_IDS and all(map(_is_int, self.stop_ids)),
        f"stop_ids is {list(self.stop_ids)!r}; at most {MAX_STOP_IDS} token ids",
    )


@dataclass(frozen=True)
class Completion:
  """What was sampled.

  Attributes:
    ids: sampled token ids, the stop id included.
    logprobs: per token, of the distribution drawn from (temperature and top_p
      applied; 0.0 where greedy).
    untempered_logprobs: per token, of the full softmax at temperature 1.
    policy_versions: per token, the version of the weights that sampled it.
    finish_reason: "stop" or "length".
    reused_tokens: prompt tokens whose KV was already there.
  """

  ids: list[int]
  logprobs: list[float]
  untempered_logprobs: list[float]
  policy_versions: list[int]
  finish_reason: str
  reused_tokens: int


@dataclass(eq=False)
class Request:
  """A prompt on its way through the engine.

  Attributes:
    prompt: int32 [n].
    limit: tokens that may be sampled, with the room left taken into account.
    key: uint32 [2], threefry key data of the seed.
  """

  prompt: np.ndarray
  sampling: Sampling
  limit: int
  key: np.ndarray
  future: Future[Completion] = field(default_factory=Future)
  ids: list[int] = field(default_factory=list)
  logprobs: list[float] = field(default_factory=list)
  untempered_logprobs: list[float] = field(default_factory=list)
  policy_versions: list[int] = field(default_factory=list)
  reused_tokens: int = 0

  @classmethod
  def check(
      cls, prompt_ids: list[int], sampling: Sampling, max_len: int, vocab_size: int
  ) -> Request:
    """Raises `Refused` for a prompt the engine can never answer."""
    _refuse_unless(len(prompt_ids) > 0, "prompt_ids is empty")
    _refuse_unless(
        len(prompt_ids) < max_len,
        f"the prompt has {len(prompt_ids)} tokens; with max_len {max_len} at most"
        f" {max_len - 1} fit, so that one can be sampled",
    )
    _refuse_unless(all(map(_is_int, prompt_ids)), "prompt_ids must be token ids")
    prompt = np.asarray(prompt_ids, np.int64)
    wrong = prompt[(prompt < 0) | (prompt >= vocab_size)]
    _refuse_unless(
        not wrong.size, f"token id {wrong[:1]} is outside the {vocab_size} of the model"
    )
    room = max_len - len(prompt)
    seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
    return cls(
        prompt=prompt.astype(np.int32),
        sampling=sampling,
        limit=room if sampling.max_tokens is None else min(room, sampling.max_tokens),
        key=np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32),
    )

  @property
  def finish_reason(self) -> str | None:
    """"stop", "length", or None while it runs."""
    if self.ids and self.ids[-1] in self.sampling.stop_ids:
      return "stop"
    return "length" if len(self.ids) >= self.limit else None

  def completion(self) -> Completion:
    """Raises RuntimeError where a column lacks a token."""
    columns = (
        self.ids, self.logprobs, self.untempered_logprobs, self.policy_versions
    )
    if len({len(column) for column in columns}) != 1 or not self.ids:
      raise RuntimeError(f"columns of lengths {[len(c) for c in columns]}")
    return Completion(*columns, self.finish_reason, self.reused_tokens)


def _is_int(value: object) -> bool:
  return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
  return (_is_int(value) or isinstance(value, float)) and math.isfinite(value)


def _refuse_unless(condition: bool, message: str) -> None:
  if not condition:
    raise Refused(message)
