"""Fills a folder with tasks that a model wrote: `--num_tasks` ideas, those admitted.

  NAME/           an admitted task; nothing else appears under a task's name
  llm.json        the verdict of each idea with its causes; cost and yield by stage
  synthesis.json  what the run is of
  .llm/           every reply, attempt and verdict by the content of what was asked

The same command continues after any end, kill -9 included, and asks for nothing
twice. An idea that the endpoint or the platform lost is undecided, and tried
again by the next run. Of the same work, or nearly the same requests, the first
one stays.
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

from clawgym_jax import cli
from clawgym_jax.contracts import json_text
from clawgym_jax.contracts.errors import RecordError
from clawgym_jax.contracts.files import require_room, write_json
from clawgym_jax.contracts.runs import only_writer, same_run
from clawgym_jax.contracts.task import intact, load_task
from data_gen.audit import near, same
from data_gen.audit.report import kind_of
from data_gen.llm import GENERATOR, prompts
from data_gen.llm.cache import Cache
from data_gen.llm.endpoint import Endpoint
from data_gen.llm.model import Model
from data_gen.llm.pipeline import Line, Verdict, carry_out
from data_gen.llm.seeds import Seed, seed_of
from data_gen.llm.settings import Settings
from data_gen.llm.solver import Solver
from data_gen.llm.tally import STAGES, Paid, Tally, summed
from sandbox.backends import check_backend
from sandbox.reap import reap

_SAVE_SECONDS = 5.0
_TELL_SECONDS = 1.0

Record = dict[str, Any]  # a verdict, and what its idea spent by stage


def synthesize(
    out: Path, num_tasks: int, seed: int, split: str, settings: Settings
) -> dict[str, Any]:
  """Carries out ideas 0 … num_tasks - 1; the counts. See the module's docstring.

  `UserError` if `out` holds another run, or the endpoint refuses key or model.
  """
  with only_writer(out, "synthesis"):
    require_room(out)
    check_backend(settings.backend, out)
    reap()
    same_run(
        out / "synthesis.json",
        {
            "seed": seed, "split": split, "generator": "llm", "model": settings.model,
            "endpoint": settings.host, "prompts": prompts.VERSION,
        },
    )  # fmt: skip
    seeds = [seed_of(seed, split, index) for index in range(num_tasks)]
    return asyncio.run(_Run(out, settings).fill(seeds))


class _Run:
  """One run over a folder."""

  def __init__(self, out: Path, settings: Settings) -> None:
    self._out, self._settings = out, settings
    kept = _kept(out / "llm.json")
    self._records: dict[str, Record] = kept.get("ideas", {})
    self._failed_before = {  # tries that gave no reply
        stage: Counter(row["failed"]) for stage, row in kept.get("stages", {}).items()
    }
    self._paid = Paid()
    self._saved = time.monotonic()

  async def fill(self, seeds: list[Seed]) -> dict[str, Any]:
    missing = [seed for seed in seeds if not self._decided(seed)]
    settings = self._settings
    cache = Cache(self._out / ".llm" / "kept")
    shutil.rmtree(self._out / ".llm" / "work", ignore_errors=True)  # of one killed
    async with Endpoint(settings) as endpoint:
      model = Model(settings, endpoint, cache, self._paid)
      async with Solver(model, cache, settings.backend) as solver:
        line = Line(self._out, settings, model, solver, cache)
        try:
          await self._work(line, missing, len(seeds))
          self._reject_alike()
        finally:
          self._save()
    return self._summary(seeds, len(missing))

  async def _work(self, line: Line, missing: list[Seed], planned: int) -> None:
    bar = cli.progress(planned, "ideas", done=planned - len(missing), unit="idea")
    waiting = iter(missing)

    async def work() -> None:
      for seed in waiting:
        tally = Tally()
        found = await carry_out(line, seed, tally)
        if found.verdict == "rejected":
          shutil.rmtree(self._out / seed.name, ignore_errors=True)  # of before
        self._records[seed.name] = {
            **dataclasses.asdict(found), "stages": tally.record()
        }
        bar.update()
        if time.monotonic() - self._saved > _SAVE_SECONDS:
          self._save()

    async def tell() -> None:
      while True:
        bar.set_postfix_str(self._progress(line.busy))
        await asyncio.sleep(max(_TELL_SECONDS, bar.mininterval))

    workers = [asyncio.create_task(work()) for _ in range(self._settings.concurrency)]
    telling = asyncio.create_task(tell())
    try:
      await asyncio.gather(*workers)
    finally:
      for task in (*workers, telling):
        task.cancel()
      await asyncio.gather(*workers, telling, return_exceptions=True)
      bar.set_postfix_str(self._progress(line.busy))
      bar.close()

  def _progress(self, busy: Counter[str]) -> str:
    """Yield, and how many ideas are in which stage."""
    counts = Counter(record["verdict"] for record in self._records.values())
    done = f"{counts['admitted']} of {counts.total()} admitted"
    now = ", ".join(f"{stage} {count}" for stage, count in busy.items() if count > 0)
    return f"{done}; {now}" if now else done

  def _decided(self, seed: Seed) -> bool:
    """Whether an earlier run decided, and what it admitted is there as it was."""
    record = self._records.get(seed.name)
    if record is None or record["verdict"] == "lost":
      return False
    place = self._out / seed.name
    if record["verdict"] == "rejected":
      return not place.exists()
    try:
      task = load_task(place)
    except RecordError:
      return False
    same = task.provenance.get("content_hash") == record["content_hash"]
    return same and intact(task)

  def _reject_alike(self) -> None:
    admitted = {
        name: load_task(self._out / name)
        for name, record in self._records.items()
        if record["verdict"] == "admitted" and (self._out / name).is_dir()
    }
    again = same.earlier({name: same.work(task) for name, task in admitted.items()})
    causes = {name: same.cause(other) for name, other in again.items()}
    asked = {
        name: (task.category, task.instruction)
        for name, task in admitted.items()
        if name not in causes
    }
    for name, (similarity, other) in near.nearest(asked).items():
      if similarity > near.MOST:
        causes[name] = f"duplicate: {similarity:.2f} of its request is that of {other}"
    for name, cause in causes.items():
      found = Verdict("rejected", "audit", (cause,), self._records[name]["rounds"])
      self._records[name] |= dataclasses.asdict(found)
      shutil.rmtree(self._out / name)

  def _save(self) -> None:
    self._saved = time.monotonic()
    ideas = dict(sorted(self._records.items()))
    counts = Counter(record["verdict"] for record in ideas.values())
    failed = {
        stage: self._failed_before.get(stage, Counter()) + self._paid.failed[stage]
        for stage in STAGES
    }
    write_json(
        self._out / "llm.json",
        {
            "generator": GENERATOR,
            "model": self._settings.model,
            "endpoint": self._settings.host,
            "prompts": prompts.VERSION,
            "counts": dict(sorted(counts.items())),
            "stages": _stages(ideas, failed=failed),
            "ideas": ideas,
        },
    )

  def _summary(self, seeds: list[Seed], tried: int) -> dict[str, Any]:
    records = {seed.name: self._records[seed.name] for seed in seeds}
    counts = Counter(record["verdict"] for record in records.values())
    unsound = {n: r for n, r in sorted(records.items()) if r["verdict"] != "admitted"}
    kinds = Counter(
        kind_of(r["causes"][0]) for r in unsound.values() if r["verdict"] == "rejected"
    )
    return {
        "planned": len(seeds),
        **{verdict: counts[verdict] for verdict in ("admitted", "rejected", "lost")},
        "already_decided": len(seeds) - tried,
        "causes": dict(kinds.most_common()),
        "unsound": {name: list(record["causes"]) for name, record in unsound.items()},
        "stages": _stages(records, failed=self._paid.failed, paid=self._paid.tokens),
        "out": str(self._out),
    }


def printed(summary: dict[str, Any]) -> str:
  """The summary for a person."""
  lines = [
      f"{summary['admitted']} of {summary['planned']} ideas are tasks in"
      f" {summary['out']}; {summary['rejected']} rejected, {summary['lost']} lost"
  ]
  first, *others = _COLUMNS
  lines.append(first.ljust(8) + "".join(name.rjust(11) for name in others))
  for stage, row in summary["stages"].items():
    cells = [row[name] for name in _COUNTED]
    lines.append(stage.ljust(8) + "".join(str(cell).rjust(11) for cell in cells))
    for name in ("discarded", "failed"):
      if row[name]:
        said = ", ".join(f"{count} {cause}" for cause, count in row[name].items())
        lines.append(f"  {name}: {said}")
  for name, causes in summary["unsound"].items():
    lines.append(f"  {name}: {'; '.join(causes)}")
  return "\n".join(lines)


_COLUMNS = ("stage", "entered", "passed", "replies", "prompt", "completion")
_COUNTED = ("entered", "passed", "replies", "prompt_tokens", "completion_tokens")


def _stages(
    records: dict[str, Record], **counted: dict[str, Counter[str]]
) -> dict[str, dict[str, Any]]:
  """Cost and yield by stage over `records`, with what else was counted by stage."""
  stages = summed(record["stages"] for record in records.values())
  for stage, row in stages.items():
    for name, found in counted.items():
      row[name] = dict(sorted(found.get(stage, {}).items()))
  return stages


def _kept(path: Path) -> dict[str, Any]:
  """What an earlier run wrote; nothing where that is damaged, since all of it can be
  had again from what is kept below .llm/."""
  try:
    kept = json_text.parse(path.read_text())
    return kept if kept["generator"] == GENERATOR else {}
  except (FileNotFoundError, ValueError, LookupError, TypeError):
    return {}
