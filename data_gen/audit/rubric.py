"""What a rubric may ask: of what the solution hands over, what code can't see.

Each criterion looks at a file that the reference solution makes or changes, or at
what was said and done. None asks again what a named check judges, and none tells
a value that the checks expect: a judge that knows it would look for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from clawgym_jax.contracts.rubric import Criterion
from clawgym_jax.contracts.task import Task
from data_gen.audit.provenance import words
from data_gen.audit.reading import expected_words
from data_gen.compose.criteria import TEMPLATES
from sandbox.backends.base import Files
from sandbox.harnesses import asked_of

_SHORT = 2  # letters: words up to that say nothing


def faults(
    task: Task, initial: Files, solved: Files, checks: Iterable[str]
) -> Iterator[str]:
  """Causes to reject `task`, whose solution makes `solved` out of `initial` and is
  judged by `checks`, their names."""
  names = list(checks)
  secret = expected_words(task) - _given(task)
  for criterion in task.rubric():
    path = criterion.file_path
    if path and solved.get(path) == initial.get(path):
      yield f"rubric: {criterion.name} looks at {path}, which no solution hands over"
    for check in names:
      if _repeats(criterion, check):
        yield f"rubric: {criterion.name} asks again what the check {check} judges"
        break
    for word in sorted(_told(criterion) & secret - set(words(path)))[:1]:
      yield f"rubric: {criterion.name} tells {word!r}, which the checks expect"


def _repeats(criterion: Criterion, check: str) -> bool:
  """Whether it has the check's name, or all that the name is made of in its question;
  a name of one word says too little for that."""
  if words(criterion.name) == words(check):
    return True
  about = {word for word in words(check) if len(word) > _SHORT}
  return len(about) > 1 and about <= set(words(criterion.criterion))


def _told(criterion: Criterion) -> set[str]:
  """The words of a criterion that may be values."""
  texts = (criterion.name, criterion.criterion, *criterion.scores.values())
  found = {word for text in texts for word in words(text)}
  return {w for w in found if len(w) > _SHORT or (w.isdigit() and len(w) > 1)}


def _given(task: Task) -> set[str]:
  """Words that are no secret: the request's and our templates'."""
  return {*words(asked_of(task)), *_ours()}


@cache
def _ours() -> frozenset[str]:
  texts = (text for t in TEMPLATES for text in (t.name, t.asks, *t.levels))
  return frozenset(word for text in texts for word in words(text))
