"""Ends a run whose loss or gradient is lost, and says which sample did it.

A step is bad if its loss or gradient is not finite, or if its loss is `spike` times
the median of the last steps' (taken as 1 nat a token at least). Such a step changes
no weight. Its batch is written out, with what each row does alone, and in the worst
rows each trajectory.
"""

from __future__ import annotations

import io
import math
import statistics
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_atomic, write_json
from clawgym_jax.data.corpus import Corpus, Sources
from clawgym_jax.sft.feed import Fed
from clawgym_jax.sft.setup import place
from clawgym_jax.sft.updates import Updates

_STEPS = 32  # that the median is of
_FEWEST = 8  # before them nothing is a spike
_ROWS = 4  # whose trajectories are looked at
_TEXT = 300  # characters of a sample, its last


class Guard:
  """Knows what loss a step may have; `spike` 0 bounds none that is finite."""

  def __init__(self, spike: float, losses: Iterable[float | None]):
    """`losses` are those of the steps before, of an earlier life of the run."""
    self._spike = spike
    self._losses: deque[float] = deque(
        (loss for loss in losses if loss is not None), maxlen=_STEPS
    )

  @property
  def limit(self) -> float:
    """The largest loss a trained token that is no spike."""
    if not self._spike or len(self._losses) < _FEWEST:
      return math.inf
    return self._spike * max(1.0, statistics.median(self._losses))

  def cause(self, loss: float, norm: float) -> str | None:
    """What is wrong with a step of that loss and gradient; None: nothing."""
    if not math.isfinite(loss):
      return f"its loss is {loss}"
    if not math.isfinite(norm):
      return f"its gradient's norm is {norm}"
    if loss > self.limit:
      return f"its loss is {loss:.4g}, where {self.limit:.4g} is the limit by those before"
    self._losses.append(loss)
    return None


def report(
    out: Path,
    step: int,
    cause: str,
    fed: Fed,
    updates: Updates,
    params: nnx.State,
    tokenizer: Tokenizer,
    data: tuple[Sources, Corpus],
    mesh: jax.sharding.Mesh | None,
) -> UserError:
  """Writes bad_step_N.npz and .json, and gives the error that ends the run.

  `data` is what the samples are looked up in.
  """
  name = f"bad_step_{step}"
  packed = io.BytesIO()
  np.savez_compressed(packed, **fed.rows)
  write_atomic(out / f"{name}.npz", packed.getvalue())
  found = {"step": step, "cause": cause, "rows": []}
  if jax.process_count() == 1:
    found["rows"] = _rows(fed, updates, params, tokenizer, data, mesh)
  write_json(out / f"{name}.json", found)
  what = "look at it with one process to have the sample named"
  suspects = [t for row in found["rows"] for t in row.get("trajectories", [])]
  if suspects:
    worst = suspects[0]
    what = (
        f"most of it is from row {worst['row']}, {worst['sample']}: loss"
        f" {worst['loss']}, gradient {worst['gradient_norm']}, ends"
        f" {worst['text'][-80:]!r}"
    )
  return UserError(
      f"step {step} is not trained on: {cause}; {what}. The batch is in"
      f" {out / name}.npz and .json, weights from before in {out / 'checkpoints'}."
      " Leave that sample out or lower optimizer.peak_lr, and give another folder"
  )


def _rows(fed, updates, params, tokenizer, data, mesh) -> list[dict[str, Any]]:
  """What each row does alone, the worst first; of the worst, each trajectory."""
  size = len(fed.rows["tokens"]) // len(fed.parts)
  norm_of = jax.jit(optax.tree.norm)

  def alone(row: int, kept: np.ndarray) -> dict[str, Any]:
    part = fed.parts[row // size]
    weight = np.zeros(part["weight"].shape, np.float32)
    weight[row % size] = np.where(kept, fed.rows["weight"][row], 0)
    total = float(weight.sum())
    part = part | place({"weight": weight}, mesh)
    if len(fed.parts) == 1:  # the program that there is
      grads, sums = updates.summed(params, [part], total)
    else:
      grads, sums = updates.accumulate(None, params, part, total)
    return {
        "row": row,
        "trained_tokens": int((weight > 0).sum()),
        "loss": _told(float(sums["loss"]) / max(total, 1.0)),
        "gradient_norm": _told(float(norm_of(grads))),
    }

  rows = [alone(row, weight > 0) for row, weight in enumerate(fed.rows["weight"])]
  rows.sort(key=_badness, reverse=True)
  for found in rows[:_ROWS]:
    row = {name: value[found["row"]] for name, value in fed.rows.items()}
    tried = []
    for leaf in _leaves(row):
      path = (np.arange(len(row["end"])) <= leaf) & (leaf < row["end"])
      kept = path[row["index"]] & (row["weight"] > 0)
      tokens = row["tokens"][path]
      tried.append(
          alone(found["row"], kept)
          | {
              "sample": _sample(tokens, *data),
              "text": tokenizer.decode(tokens.tolist())[-_TEXT:],
          }
      )
    found["trajectories"] = sorted(tried, key=_badness, reverse=True)
  return rows


def _leaves(row: dict[str, np.ndarray]) -> np.ndarray:
  """Where the paths of a row end that hold a trained token."""
  ends = np.flatnonzero(row["end"] == np.arange(1, len(row["end"]) + 1))
  return np.unique(ends[np.searchsorted(ends, row["index"][row["weight"] > 0])])


def _sample(tokens: np.ndarray, sources: Sources, corpus: Corpus) -> str | None:
  """Where the record is that has these tokens."""
  for index in np.flatnonzero(corpus.sequences.length == len(tokens)):
    if np.array_equal(corpus.sequences[int(index)].tokens, tokens):
      return sources.where(*corpus.sequences.origin(int(index)))
  return None


def _told(value: float) -> float | str:
  """JSON has no word for what is not finite."""
  return value if math.isfinite(value) else str(value)


def _badness(found: dict[str, Any]) -> tuple[bool, bool, float]:
  loss, norm = found["loss"], found["gradient_norm"]
  lost = isinstance(loss, str) or isinstance(norm, str)
  return lost, isinstance(loss, str), 0.0 if isinstance(loss, str) else loss
