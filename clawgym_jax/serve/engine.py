"""Continuous batching over fixed slots: one thread, many requests, no hang.

Requests join and leave between decode calls. New weights take effect between
two calls: tokens carry the version that sampled them, all KV is recomputed
with the new weights, and no request is dropped. The first error in the
engine's thread, or a device call longer than its deadline, ends every request
with that error and is told to `on_failure`; later requests get it at once.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from clawgym_jax.models.causal_lm import CausalLM
from clawgym_jax.models.fingerprint import fingerprint
from clawgym_jax.serve.programs import Programs
from clawgym_jax.serve.requests import Completion, Request, Sampling
from clawgym_jax.serve.slots import Slots
from clawgym_jax.serve.steps import DecodeInput, Params

_PREFILLS_PER_DECODE = 4  # running requests wait for at most these


class EngineError(RuntimeError):
  """The engine is dead or closed; the first cause is in the message."""


class Busy(RuntimeError):
  """The queue is full: come again later."""


@dataclass
class Stats:
  """Counts since the start; tokens but for the first and the calls."""

  requests: int = 0
  prompt_tokens: int = 0
  reused_tokens: int = 0
  prefilled_tokens: int = 0
  sampled_tokens: int = 0
  prefill_calls: int = 0
  decode_calls: int = 0
  weight_updates: int = 0


class Engine:
  """Samples completions of token prompts.

  Args:
    model: gives the shape, the compute dtype and the first weights (copied).
    tokenizer: handed to clients over HTTP; the engine itself reads ids only.
    name: the model's name for clients.
    slots: requests that run at once.
    max_len: tokens of prompt and completion together, at most.
    policy_version: of the first weights.
    max_queue: requests that may wait; beyond, `Busy`.
    decode_steps: tokens a slot may gain in one device call.
    prefill_shapes: the [rows, width] that prefill is cut into; each is a
      program to compile. Wider ones pay on accelerators.
    call_deadline: seconds after which a step counts as stalled.
    compute_dtype: of matrix operands, weights served and cache; the model's
      own by default.

  Attributes:
    on_failure: called once, from another thread, with the error that ended it.
  """

  def __init__(
      self,
      model: CausalLM,
      tokenizer: Any,
      *,
      name: str = "policy",
      slots: int = 16,
      max_len: int = 1024,
      policy_version: int = 0,
      max_queue: int = 4096,
      decode_steps: int = 8,
      prefill_shapes: Sequence[tuple[int, int]] = ((1, 32), (4, 32), (1, 128)),
      call_deadline: float = 120.0,
      compute_dtype: jnp.dtype | None = None,
  ):
    dtype = jnp.dtype(compute_dtype or model.compute_dtype)
    self.tokenizer = tokenizer
    self.name = name
    self.max_len = max_len
    self.vocab_size = model.config.vocab_size
    self.compute_dtype = dtype
    self.stats = Stats()
    self.on_failure: Callable[[EngineError], None] | None = None
    self._max_queue = max_queue
    self._call_deadline = call_deadline
    self._slots = Slots(slots, max_len)
    self._programs = Programs(
        model.config,
        dtype,
        lora=model.lora,
        slots=slots,
        max_len=max_len,
        steps=decode_steps,
        prefill_shapes=sorted(
            {(min(rows, slots), min(width, max_len)) for rows, width in prefill_shapes}
        ),
    )
    self._version = policy_version
    self._weights = fingerprint(nnx.state(model, nnx.Param))
    self._params = self._programs.convert(nnx.state(model, nnx.Param))
    self._wake = threading.Condition()
    self._queue: collections.deque[Request] = collections.deque()
    self._update: tuple[Params, int, str, Future[None]] | None = None
    self._error: EngineError | None = None
    self._closing = False
    self._busy_since: float | None = None  # None while there is nothing to do
    self._stage = ""
    ready: Future[None] = Future()
    self._thread = threading.Thread(
        target=self._run, args=(ready,), name="engine", daemon=True
    )
    self._thread.start()
    ready.result()
    threading.Thread(target=self._watch, name="engine-watch", daemon=True).start()

  @property
  def policy_version(self) -> int:
    return self._version

  @property
  def weights(self) -> str:
    """The fingerprint of the weights that were handed in last."""
    return self._weights

  @property
  def recompiles(self) -> int:
    """XLA compiles after warm-up; anything but 0 is a defect."""
    return self._programs.recompiles

  def report(self) -> dict[str, int]:
    """Counts for people: `Stats`, recompiles, requests running and waiting."""
    return asdict(self.stats) | {
        "recompiles": self.recompiles,
        "running": len(self._slots.running()),
        "waiting": len(self._queue),
    }

  def generate(
      self, prompt_ids: Sequence[int], sampling: Sampling = Sampling()
  ) -> Future[Completion]:
    """Queues one completion; cancel the future to give its slot back.

    Raises:
      Refused: the prompt can never be answered (too long, bad ids).
      Busy: the queue is full.
      EngineError: the engine is dead or closed; the future ends so, too.
    """
    request = Request.check(
        list(prompt_ids), sampling, self.max_len, self.vocab_size
    )
    with self._wake:
      self._raise_if_dead()
      if len(self._queue) >= self._max_queue:
        raise Busy(f"{len(self._queue)} requests wait already")
      self._queue.append(request)
      self._wake.notify()
    return request.future

  def update_weights(
      self, params: nnx.State, policy_version: int, *, timeout: float = 300.0
  ) -> None:
    """Serves `params` from the next call on; returns once that is so.

    Args:
      params: the training model's `nnx.state(model, nnx.Param)`; copied.
      policy_version: stamped on the tokens they sample.
      timeout: seconds; TimeoutError after them.
    """
    done: Future[None] = Future()
    converted = self._programs.convert(params)
    jax.block_until_ready(converted)
    weights = fingerprint(params)
    with self._wake:
      self._raise_if_dead()
      if self._update is not None:
        raise EngineError("two weight updates at once")
      self._update = converted, policy_version, weights, done
      self._wake.notify()
    done.result(timeout)

  def close(self, timeout: float = 10.0) -> None:
    """Ends every request with EngineError and the thread; safe to repeat."""
    with self._wake:
      self._closing = True
      self._wake.notify()
    self._thread.join(timeout)
    self._end(EngineError("the engine was closed"))

  def __enter__(self) -> Engine:
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  def _raise_if_dead(self) -> None:
    if self._error is not None:
      raise EngineError(str(self._error)) from self._error
    if self._closing:
      raise EngineError("the engine is closing")

  def _run(self, ready: Future[None]) -> None:
    try:
      self._programs.warm_up(self._params)
      ready.set_result(None)
    except BaseException as error:  # the constructor raises it
      ready.set_exception(error)
      return
    try:
      while self._wait():
        self._step()
    except BaseException as error:
      failure = EngineError(f"the engine failed: {type(error).__name__}: {error}")
      failure.__cause__ = error
      self._fail(failure)

  def _wait(self) -> bool:
    """Sleeps until there is work; False when the engine ends."""
    with self._wake:
      while not (
          self._closing or self._error or self._update or self._queue
          or self._slots.running()
      ):
        self._busy_since = None
        self._wake.wait()
      self._busy_since = time.monotonic()
      return not (self._closing or self._error)

  def _step(self) -> None:
    self._stage = "admission"
    self._apply_update()
    for slot in self._slots.running():
      if self._slots.requests[slot].future.cancelled():
        self._slots.release(slot)
    self._admit()
    self._stage = "prefill"
    for _ in range(_PREFILLS_PER_DECODE):
      if not self._prefill():
        break
    self._stage = "decode"
    self._decode()

  def _apply_update(self) -> None:
    with self._wake:
      update, self._update = self._update, None
    if update is None:
      return
    self._params, self._version, self._weights, done = update
    self._slots.invalidate()
    self.stats.weight_updates += 1
    self._settle(done)

  def _admit(self) -> None:
    while self._queue:
      request = self._queue[0]
      if not request.future.cancelled():
        placed = self._slots.place(request)
        if placed is None:
          return
        if placed[1]:
          self._programs.copy(placed[1])
        self.stats.requests += 1
        self.stats.prompt_tokens += len(request.prompt)
      self._queue.popleft()

  def _prefill(self) -> bool:
    """One prefill call; False when none is needed."""
    for copy in self._slots.share():
      self._programs.copy(copy)
    call = self._slots.next_prefill(self._programs.prefill_shapes)
    if call is None:
      return False
    self._programs.prefill(self._params, call)
    self._slots.prefilled(call)
    self.stats.prefill_calls += 1
    self.stats.prefilled_tokens += sum(call.counts)
    return True

  def _decode(self) -> None:
    slots = self._slots.decodable()
    if not slots:
      return
    batch = DecodeInput.empty(self._slots.count)
    for slot in slots:
      request = self._slots.requests[slot]
      sampling = request.sampling
      position = self._slots.need[slot]
      batch.tokens[slot] = self._slots.tokens[slot, position]
      batch.positions[slot] = position
      batch.remaining[slot] = request.limit - len(request.ids)
      batch.keys[slot] = request.key
      batch.temperature[slot] = sampling.temperature
      batch.top_p[slot] = sampling.top_p
      batch.stop_ids[slot, : len(sampling.stop_ids)] = sampling.stop_ids
    sampled = self._programs.decode(self._params, batch, hurry=bool(self._queue))
    self.stats.decode_calls += 1
    for slot in slots:
      request = self._slots.requests[slot]
      count = int(sampled.counts[slot])
      self.stats.sampled_tokens += count
      tokens = sampled.tokens[:count, slot].tolist()
      request.ids += tokens
      request.logprobs += sampled.logprobs[:count, slot].tolist()
      request.untempered_logprobs += (
          sampled.untempered_logprobs[:count, slot].tolist()
      )
      request.policy_versions += [self._version] * count
      self._slots.extend(slot, tokens)
      if request.finish_reason:
        self.stats.reused_tokens += request.reused_tokens
        self._slots.release(slot)
        self._settle(request.future, result=request.completion())

  def _watch(self) -> None:
    """Ends the engine when a step takes longer than the deadline."""
    while not (self._closing or self._error):
      time.sleep(min(1.0, self._call_deadline / 4))
      since = self._busy_since
      if since is not None and time.monotonic() - since > self._call_deadline:
        self._fail(EngineError(
            f"the engine failed: a step took more than {self._call_deadline:g} s"
            f" and is still in {self._stage}"
        ))

  def _fail(self, error: EngineError) -> None:
    if self._end(error) and self.on_failure is not None:
      self.on_failure(error)

  def _end(self, error: EngineError) -> bool:
    """Gives the first error to everyone who waits; False if there was one."""
    with self._wake:
      if self._error is not None:
        return False
      self._error = error
      waiting = [r.future for r in self._queue]
      waiting += [r.future for r in self._slots.requests if r is not None]
      self._queue.clear()
      if self._update is not None:
        waiting.append(self._update[-1])
      self._update = None
      self._wake.notify()
    for future in waiting:
      self._settle(future, error=error)
    return True

  def _settle(
      self, future: Future, *, result: Any = None, error: EngineError | None = None
  ) -> None:
    """Ends `future` unless it was cancelled or the other thread was faster."""
    with self._wake:
      if future.done() or not future.set_running_or_notify_cancel():
        return
      if error is None:
        future.set_result(result)
      else:
        future.set_exception(error)
