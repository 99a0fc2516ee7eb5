"""A task on its way: what was written of it so far, and as a directory.

The directory is the contract's: `save_task` and `load_task` have the last word on
what a task may be, here as everywhere.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.rubric import Criterion
from clawgym_jax.contracts.task import Limits, Reference, SolutionCall, Task, save_task
from data_gen.llm import GENERATOR, prompts
from data_gen.llm.replies import BadReply, Written
from data_gen.llm.seeds import Seed
from data_gen.llm.settings import Settings

SOLVER_LIMITS = Limits(turns=40, seconds=300.0)
_OF_NAMES = (errno.ENAMETOOLONG, errno.EILSEQ)  # of files, which a model chose
_NO_CHECK = "def grade(workspace, final_message, transcript, services):\n  return {}\n"


@dataclass(frozen=True)
class Attempt:
  """What the solver did.

  Attributes:
    cause: why it came to no end; "" where it did.
    work: what it changed, by path: the text, cut where it is long, or None for a file
      that is gone.
  """

  calls: tuple[SolutionCall, ...]
  final_message: str
  cause: str
  work: dict[str, str | None]

  def record(self) -> dict[str, Any]:
    return dataclasses.asdict(self)

  @classmethod
  def of_record(cls, record: dict[str, Any]) -> Attempt:
    calls = tuple(SolutionCall(**call) for call in record["calls"])
    return cls(**{**record, "calls": calls})

  @property
  def delivered(self) -> set[str]:
    return {path for path, text in self.work.items() if text is not None}


@dataclass(frozen=True)
class Proposal:
  """See the module's docstring. `check` is the source of check.py, "" before it is."""

  seed: Seed
  written: Written
  check: str = ""
  attempt: Attempt | None = None
  rubric: tuple[Criterion, ...] = ()

  def save(self, directory: Path, settings: Settings) -> Task:
    """Writes the task; `BadReply` where the contract refuses what was written."""
    seed, written = self.seed, self.written
    made = self.attempt or Attempt((), "", "", {})
    task = Task(
        id=seed.name,
        instruction=written.instruction,
        family=seed.family,
        split=seed.split,
        category=seed.scenario,
        macro_category=seed.macro,
        operations=seed.operations,
        difficulty=written.difficulty,
        persona=seed.persona.record(),
        now=seed.now,
        requires=written.requires,
        limits=dataclasses.replace(
            SOLVER_LIMITS, turns=min(SOLVER_LIMITS.turns, 2 * len(made.calls) + 4)
        ),
        provenance={
            "generator": GENERATOR,
            "model": settings.model,
            "endpoint": settings.host,
            "prompts": prompts.VERSION,
            "seed": seed.number,
            "index": seed.index,
        },
    )
    inputs = {p: hashlib.sha256(d).hexdigest() for p, d in written.files.items()}
    try:
      saved = save_task(
          directory,
          task,
          workspace=written.files,
          checks={
              "check.py": (self.check or _NO_CHECK).encode(),
              "inputs.json": json.dumps(inputs, indent=1).encode() + b"\n",
          },
          turns=[Reference(list(made.calls), made.final_message)],
          services=written.services,
          rubric=self.rubric,
      )
      saved.reference()  # which a call can make unreadable
      return saved
    except (RecordError, OSError) as error:
      if isinstance(error, OSError) and error.errno not in _OF_NAMES:
        raise
      raise BadReply("wrong_form", _without(str(error), directory)) from None


def _without(text: str, directory: Path) -> str:
  """An error's text without this machine's folders."""
  partial = directory.with_name(f".{directory.name}.partial")
  return text.replace(f"{partial}/", "").replace(f"{directory}/", "")
