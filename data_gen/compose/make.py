"""Composed tasks as directories: task i of a seed and a split.

The families take turns, and so do the nine scenarios: a setting is tried again
under another number until it is of the task's scenario and gives sound work for
the graph. The number is in the provenance, so that `rebuild` makes the same
request over other records. Every fourth task is grounded in skills (`data_gen.skills`)
where any are about its graph: those of a folder that the user points at, or else
ours. The others are grounded in a persona's request alone. Some tasks have several
user turns, and then no skills, and some others a hazard (`extras`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path

from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import Limits, Reference, Task, UserTurn, save_task
from data_gen import skills
from data_gen.compose import checks, compose, rubrics
from data_gen.compose.extras import hazard_of, pattern_of
from data_gen.compose.families import Family, families
from data_gen.compose.part import Part, expected
from data_gen.compose.personas import persona
from data_gen.compose.setting import Setting
from data_gen.compose.topics import topic_of
from data_gen.compose.voices import speak
from data_gen.taxonomy import SCENARIOS
from sandbox.backends.base import Files

GENERATOR = "procedural-composed-3"
_OF_SCENARIO = 400  # settings that are tried for the scenario whose turn it is
_AT_ALL = 800
_RESEEDS = 200
_SKILLED = 4  # one task in so many: scenarios take turns by nine, so all meet skills


def choose_family(seed: int, split: str, index: int) -> Family:
  """The family of task `index`; all have had their turn before one has another."""
  known = families(split)
  cycle, place = divmod(index, len(known))
  return known[_turns(seed, split, cycle, len(known))[place]]


@lru_cache(maxsize=64)
def _turns(seed: int, split: str, cycle: int, count: int) -> list[int]:
  order = list(range(count))
  random.Random(f"turn {seed} {split} {cycle}").shuffle(order)
  return order


def planned(seed: int, split: str, index: int) -> tuple[str, str]:
  """The id and the family's name of task `index`."""
  family = choose_family(seed, split, index)
  return f"{split}-{seed}-{index:05d}-f{family.number:03d}", family.name


def grounded(seed: int, split: str, index: int, library: skills.Library) -> bool:
  """Whether skills of `library` ground task `index`."""
  return _grounds(seed, split, index, library) is library


def make(
    directory: Path,
    seed: int,
    split: str,
    index: int,
    library: skills.Library | None = None,
) -> Task:
  """Writes task `index` to `directory`, whole or not at all; `library` holds skills
  of the user's."""
  family = choose_family(seed, split, index)
  attempt, setting, part = _first_sound(family, seed, split, index, library)
  grounds = _grounds(seed, split, index, library)
  pattern = pattern_of(seed, split, index, family.graph, attempt)
  beyond = pattern.atomics if pattern else ()
  topic, asker = topic_of(setting), persona(setting)
  first, *later = _spoken(setting, part)
  count = sum(len(calls) for calls in (part.calls, *(t.calls for t in part.later)))
  return save_task(
      directory,
      Task(
          id=planned(seed, split, index)[0],
          instruction=first,
          family=family.name,
          split=split,
          category=topic.scenario,
          macro_category=topic.macro,
          operations=tuple(dict.fromkeys((*family.operations, *beyond))),
          skills=skills.placed(part),
          difficulty=min(5, 1 + count // 4),
          persona=asker.record(),
          followups=tuple(
              UserTurn(said, turn.fresh)
              for said, turn in zip(later, part.later, strict=True)
          ),
          hazard=part.hazard,
          now=f"{setting.today.isoformat()}T09:00:00Z",
          limits=Limits(turns=2 * count + 4 * len(part.asked), seconds=300.0),
          requires=part.requires,
          provenance={
              "generator": GENERATOR, "seed": seed, "index": index, "attempt": attempt,
              **({"skills": library.digest} if library and grounds is library else {}),
          },
      ),
      workspace=part.workspace,
      checks=_checks(part),
      turns=[
          Reference(turn.calls, f"Done: {turn.done}.") for turn in (part, *part.later)
      ],
      fallen=part.fallen,
      rubric=rubrics.rubric(setting, asker, part, skills.placed(part))
      if rubrics.hybrid(seed, split, index)
      else (),
      services=part.services,
  )  # fmt: skip


def rebuild(
    task: Task, reseed: int, library: skills.Library | None = None
) -> tuple[Files, Files, Files] | None:
  """Workspace, checks and services' files of the same request over other records;
  None for a task of another source, or where no other records give sound work.

  UserError for a task grounded in skills of the user's which `library` is not.
  """
  made = task.provenance
  if made.get("generator") != GENERATOR:
    return None
  digest = made.get("skills")
  if digest and (library is None or library.digest != digest):
    raise UserError(
        f"{task.id} is grounded in skills of a folder (digest {digest}): give that as"
        " --skills=DIR, as it was when the task was made"
    )
  family = choose_family(made["seed"], task.split, made["index"])
  setting = _setting(family, made["seed"], task.split, made["index"], made["attempt"])
  build = _builder(
      made["seed"], task.split, made["index"], made["attempt"],
      library if digest else None,
  )  # fmt: skip
  asked = tuple(turn.text for turn in task.user_turns)
  for number in range(_RESEEDS):
    part = build(setting.reseeded(reseed * _RESEEDS + number))
    if part is not None and _spoken(setting, part) == asked:
      return part.workspace, _checks(part), part.services
  return None


def _spoken(setting: Setting, part: Part) -> tuple[str, ...]:
  """What the persona says, turn by turn."""
  asker = persona(setting)
  return tuple(speak(setting, asker, said, n) for n, said in enumerate(part.asked))


def _first_sound(
    family: Family, seed: int, split: str, index: int, library: skills.Library | None
) -> tuple[int, Setting, Part]:
  for attempt, setting in tried(family, seed, split, index):
    part = _builder(seed, split, index, attempt, library)(setting)
    if part is not None:
      return attempt, setting, part
  raise RuntimeError(f"family {family.name} gives no task {index} of seed {seed}")


def tried(
    family: Family, seed: int, split: str, index: int
) -> Iterator[tuple[int, Setting]]:
  """The settings that task `index` may be of, the first one first, by number."""
  wanted = sorted(SCENARIOS)[index % len(SCENARIOS)]
  for attempt in range(_AT_ALL):
    setting = _setting(family, seed, split, index, attempt)
    if attempt >= _OF_SCENARIO or topic_of(setting).scenario == wanted:
      yield attempt, setting


def _grounds(
    seed: int, split: str, index: int, library: skills.Library | None
) -> skills.Library | None:
  """Whose skills a task is grounded in: those of `library` where any is about its
  graph, else ours; None for a task of a persona's request alone."""
  graph = choose_family(seed, split, index).graph
  if index % _SKILLED or pattern_of(seed, split, index, graph):
    return None
  known = [one for one in (library, skills.own()) if one is not None]
  return next((k for k in known if skills.covers(graph, split, k)), None)


def _builder(
    seed: int, split: str, index: int, attempt: int, library: skills.Library | None
) -> Callable[[Setting], Part | None]:
  """How the work is made: in several turns, or as a persona asks, or as skills say
  too."""
  graph = choose_family(seed, split, index).graph
  if pattern := pattern_of(seed, split, index, graph, attempt):
    return partial(compose.build, graph, pattern=pattern)
  hazard = hazard_of(seed, split, index, graph)
  if grounds := _grounds(seed, split, index, library):
    return partial(skills.build, graph, library=grounds, hazard=hazard)
  return partial(compose.build, graph, hazard=hazard)


def _setting(
    family: Family, seed: int, split: str, index: int, attempt: int
) -> Setting:
  return Setting(f"{seed} {split} {index} f{family.number:03d} {attempt}", split)


def _checks(part: Part) -> dict[str, bytes]:
  return {
      "check.py": checks.source(),
      "expected.json": json.dumps(expected(part), indent=1).encode() + b"\n",
  }
