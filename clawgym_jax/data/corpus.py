"""What a run learns from: all sequences of its sources, cut to the row's length.

Nothing leaves unseen. A record is bad, or how its attempt ended leaves it out, or
it gives sequences; a sequence longer than a row loses whole turns from its end or
is dropped, by the policy, and never a part of a turn. All of it is counted by
cause, and `quarantine.jsonl` beside the cached tokens has a line for each bad
record and each dropped sequence, with where and why. More bad ones than the bound
allows are an error.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clawgym_jax.chat.tokenizer import Tokenizer
from clawgym_jax.configs.base import Data
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_atomic
from clawgym_jax.data import records, sources
from clawgym_jax.data.packing import Share
from clawgym_jax.data.sequence import Sequence, head, turn_ends
from clawgym_jax.data.sources import Source
from clawgym_jax.data.tokenised import Tokenised, default_cache, tokenise


@dataclass(frozen=True)
class Sources:
  """The sources of a run, opened; `weights` are given for all of them or for none."""

  opened: list[Source]
  weights: list[float | None]

  @property
  def digest(self) -> str:
    """Of everything that the records hold."""
    return "+".join(source.digest for source in self.opened)

  def where(self, source: int, record: int) -> str:
    """Where a record is, for a person."""
    return self.opened[source].where(record)

  def texts(self) -> Iterator[str]:
    """What the readable records say, to train a vocabulary on.

    `UserError` if there is none.
    """
    said = False
    for source in self.opened:
      for index in range(len(source)):
        with contextlib.suppress(records.Bad):
          text = records.text(source[index])
          said = True
          yield text
    if not said:
      names = ", ".join(source.name for source in self.opened)
      raise UserError(f"{names}: no record is a chat or a trajectory")


def open_sources(text: str) -> Sources:
  """All sources of "NAME[@WEIGHT],…"; `UserError` for the first that isn't there."""
  named = sources.named(text)
  opened = [sources.open_source(one.name) for one in named]
  return Sources(opened, [one.weight for one in named])


@dataclass(frozen=True)
class Part(Share):
  """What became of one source.

  Attributes:
    name: as it was given.
    records: how many it has.
    bad, left_out: records that give no sequence, by cause.
    truncated, dropped: sequences longer than a row.
    lost_tokens: what was trained in them beyond what is kept.
    quarantine: the file that lists what is bad and dropped.
  """

  name: str
  records: int
  bad: Counter[str]
  left_out: Counter[str]
  truncated: int
  dropped: int
  lost_tokens: int
  quarantine: Path

  @property
  def causes(self) -> Counter[str]:
    """What is not trained on at all, by cause: records, and sequences of them."""
    return self.bad + self.left_out + Counter({records.TOO_LONG: self.dropped})


class Sequences:
  """The sequences of several sources one after the other, cut to what is kept.

  Attributes:
    length, trained: [sequences], the tokens and the trained tokens of each.
  """

  def __init__(self, stored: list[Tokenised], cuts: list[_Cut]):
    self._stored = stored
    self._of = np.repeat(np.arange(len(cuts)), [len(cut.index) for cut in cuts])
    self._index = np.concatenate([cut.index for cut in cuts])
    self.length = np.concatenate([cut.length for cut in cuts])
    self.trained = np.concatenate([cut.trained for cut in cuts])

  def __len__(self) -> int:
    return len(self.length)

  def __getitem__(self, index: int) -> Sequence:
    whole = self._stored[self._of[index]][int(self._index[index])]
    return head(whole, int(self.length[index]))

  def origin(self, index: int) -> tuple[int, int]:
    """The number of the source and of the record in it that a sequence is of."""
    source = int(self._of[index])
    return source, int(self._stored[source].record[self._index[index]])


@dataclass(frozen=True)
class Corpus:
  """All sequences of a run and how they came about."""

  sequences: Sequences
  parts: list[Part]

  @property
  def records(self) -> int:
    return sum(part.records for part in self.parts)

  @property
  def tokens(self) -> int:
    return int(self.sequences.length.sum())

  @property
  def trained_tokens(self) -> int:
    return int(self.sequences.trained.sum())

  @property
  def truncated(self) -> int:
    return sum(part.truncated for part in self.parts)

  @property
  def causes(self) -> dict[str, int]:
    """What is not trained on at all, as of `Part`."""
    return dict(sum((part.causes for part in self.parts), Counter()))


def load(opened: Sources, tokenizer: Tokenizer, data: Data) -> Corpus:
  """Tokenises what isn't yet, and cuts it to rows of `data.row_length` tokens.

  With `data.truncation` = turns the whole turns that fit are kept, and a sequence
  of which none fits counts as bad; with drop each that is longer is dropped.

  Raises:
    UserError: more than `data.max_bad` of a source's records are bad, or it has
      nothing left.
  """
  cache = Path(data.cache) if data.cache else default_cache()
  row_length, truncation = data.row_length, data.truncation
  stored, cuts, parts = [], [], []
  for source, weight in zip(opened.opened, opened.weights):
    tokens = tokenise(
        source, tokenizer, cache, min_reward=data.min_reward, processes=data.workers
    )
    cut = _cut(tokens, row_length, truncation)
    first = parts[-1].stop if parts else 0
    part = Part(
        first=first,
        stop=first + len(cut.index),
        weight=weight,
        name=source.name,
        records=tokens.records,
        bad=Counter(line["cause"] for line in tokens.bad),
        left_out=Counter(tokens.left_out),
        truncated=cut.truncated,
        dropped=len(cut.dropped),
        lost_tokens=int(tokens.trained.sum() - cut.trained.sum()),
        quarantine=tokens.folder / f"{row_length}-{truncation}" / "quarantine.jsonl",
    )
    lines = [
        {"where": source.where(line["record"])} | line
        for line in tokens.bad + cut.dropped
    ]
    write_atomic(part.quarantine, (json_text.dump(line) + "\n" for line in lines))
    _check(part, lines if truncation == "turns" else lines[: len(tokens.bad)], data)
    stored.append(tokens)
    cuts.append(cut)
    parts.append(part)
  return Corpus(Sequences(stored, cuts), parts)


@dataclass(frozen=True)
class _Cut:
  """Which sequences of an entry are kept, and how much of each; [sequences].

  `dropped` are the others, as `Tokenised.bad` has them.
  """

  index: np.ndarray
  length: np.ndarray
  trained: np.ndarray
  truncated: int
  dropped: list[dict[str, Any]]


def _cut(tokens: Tokenised, row_length: int, truncation: str) -> _Cut:
  length, trained = tokens.length.copy(), tokens.trained.copy()
  truncated, dropped = 0, []
  for i in map(int, np.flatnonzero(length > row_length)):
    sequence = tokens[i]
    ends = turn_ends(sequence)
    if truncation == "turns" and ends[0] <= row_length:
      length[i] = ends[ends <= row_length][-1]
      trained[i] = head(sequence, int(length[i])).trained_tokens
      truncated += 1
      continue
    dropped.append({
        "record": int(tokens.record[i]),
        "cause": records.TOO_LONG,
        "detail": f"{length[i]} tokens, up to its first answer {ends[0]}; a row has"
        f" {row_length}",
    })
    length[i] = 0
  index = np.flatnonzero(length)
  return _Cut(index, length[index], trained[index], truncated, dropped)


def _check(part: Part, bad: list[dict[str, Any]], data: Data) -> None:
  if len(bad) > data.max_bad * part.records:
    first = bad[0]
    raise UserError(
        f"{len(bad)} of the {part.records} records of {part.name} are bad, which is"
        f" above max_bad = {data.max_bad:g}. The first is {first['where']}:"
        f" {first['cause']} ({first['detail']}). All are in {part.quarantine}; mend"
        " them, raise the row length if they are too long, or raise max_bad"
    )
  if part.first == part.stop:
    why = ", ".join(f"{count} {cause}" for cause, count in part.causes.items())
    raise UserError(
        f"{part.name} has nothing to train on in rows of {data.row_length} tokens:"
        f" {why}"
    )
