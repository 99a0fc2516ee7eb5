"""From runs to a page: comparisons, the trajectories' index, one HTML string.

The page's scripts and styles are named by hash in its content security
policy, which allows nothing else: no request leaves the page, and a script
that data smuggles in does not run. Data is JSON inside inert script elements,
with every `<`, `>` and `&` written as an escape.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import html
from collections.abc import Iterable
from dataclasses import asdict
from importlib import resources
from typing import Any

from clawgym_jax.contracts import json_text
from eval import stats
from eval.report import transcript
from eval.report.curves import charts
from eval.report.runs import Run, Stage
from eval.report.words import conclude
from eval.summary import scores

TOKEN_BYTES = 3_000_000  # of token data in one page
TEXT_BYTES = 24_000_000  # of trajectories in one page
_SCRIPTS = ("dom.js", "charts.js", "sections.js", "viewer.js", "app.js")
_BASELINES = ("null", "oracle")  # harnesses without a model: not compared


def page(
    runs: list[Run],
    *,
    title: str,
    metrics: dict[str, list[dict[str, Any]]] | None = None,
    stages: list[Stage] | None = None,
    created: datetime.datetime | None = None,
) -> str:
  """The whole page. Runs without a summary appear among trajectories only."""
  measured = [run for run in runs if run.summary is not None]
  created = created or datetime.datetime.now(datetime.timezone.utc)
  entries, bodies, notes, shared = _trajectories(runs)
  data = {
      "title": title,
      "created": created.strftime("%Y-%m-%d %H:%M UTC"),
      "suite": measured[0].summary["suite"] if measured else None,
      "runs": [
          {k: v for k, v in run.summary.items() if k != "tasks"}
          | {"name": run.name, "baseline": run.summary["harness"] in _BASELINES}
          for run in measured
      ],
      "names": [run.name for run in runs],
      "comparisons": comparisons(measured),
      "training": [
          {"run": name, **charts(rows)} for name, rows in (metrics or {}).items()
      ],
      "stages": [asdict(stage) for stage in stages or []],
      "trajectories": entries,
      "notes": notes,
      "shared": shared,
  }
  return _assemble(title, data, bodies)


def comparisons(runs: list[Run]) -> list[dict[str, Any]]:
  """Each run against the one before it, then the last against the first."""
  compared = [r for r in runs if r.summary["harness"] not in _BASELINES]
  pairs = list(zip(compared, compared[1:]))
  if len(compared) > 2:
    pairs.append((compared[0], compared[-1]))
  result = []
  for before, after in pairs:
    difference = stats.paired_difference(scores(before.summary), scores(after.summary))
    result.append({
        "before": before.name,
        "after": after.name,
        **asdict(difference),
        "sentence": conclude(before.name, after.name, difference),
    })
  return result


def embed(value: Any) -> str:
  """JSON that can stand inside a script element whatever it holds."""
  text = json_text.dump(value)
  for character in "<>&\u2028\u2029":
    text = text.replace(character, f"\\u{ord(character):04x}")
  return text


def _trajectories(
    runs: list[Run],
) -> tuple[list[dict[str, Any]], list[str], list[str], list[str]]:
  """Index entries, their embedded bodies, notes on what was left out, texts."""
  shared = transcript.Shared()
  kept, bodies, left_out, with_tokens, without, text, spent = [], [], 0, 0, 0, 0, 0
  for run, trajectory in _interleaved(runs):
    turns = transcript.turns(trajectory, shared)
    body = {
        "turns": turns,
        "final": transcript.cut(trajectory.final_message),
        "checks": trajectory.outcome.checks,
        "criteria": trajectory.outcome.criteria,
        "changes": trajectory.metadata.get("changes", {}),
    }
    text += len(embed(body))
    if text > TEXT_BYTES and kept:
      left_out += 1
      continue
    tokens = transcript.tokens(trajectory, run.tokenizer) if spent < TOKEN_BYTES else {}
    size = len(embed(tokens))
    if tokens and spent + size <= TOKEN_BYTES:
      body["tokens"] = tokens
      spent += size
      with_tokens += 1
    elif any(step.response_ids for step in trajectory.steps):
      without += 1
    kept.append(_entry(run, trajectory, turns))
    bodies.append(embed(body))
  order = {run.name: i for i, run in enumerate(runs)}
  rank = sorted(
      range(len(kept)),
      key=lambda i: (kept[i]["task"], kept[i]["sample"], order[kept[i]["run"]], i),
  )
  notes = []
  if without:
    notes.append(
        f"Sampled tokens are kept for {with_tokens} of {with_tokens + without}"
        " trajectories that have them, to keep this page small; the runs' folders hold them all."
    )
  if left_out:
    notes.append(
        f"{len(kept)} of {len(kept) + left_out} trajectories are in this page, to"
        " keep it small; the runs' folders hold them all."
    )
  return [kept[i] for i in rank], [bodies[i] for i in rank], notes, shared.values


def _interleaved(runs: list[Run]) -> Iterable[tuple[Run, Any]]:
  """Each run's next trajectory in turn, so that a limit cuts all runs alike."""
  for i in range(max((len(run.trajectories) for run in runs), default=0)):
    for run in runs:
      if i < len(run.trajectories):
        yield run, run.trajectories[i]


def _entry(run: Run, trajectory: Any, turns: list[dict[str, Any]]) -> dict[str, Any]:
  task = (run.summary or {}).get("tasks", {}).get(trajectory.task_id, {})
  outcome = trajectory.outcome
  return {
      "id": trajectory.id,
      "run": run.name,
      "task": trajectory.task_id,
      "family": task.get("family", ""),
      "category": task.get("category", ""),
      "sample": trajectory.sample_index,
      "attempt": trajectory.attempt,
      "harness": trajectory.harness,
      "status": outcome.status,
      "score": outcome.score,
      "code": outcome.code,
      "rubric": outcome.rubric,
      "cause": outcome.cause,
      "calls": len(trajectory.steps),
      "turns": len(turns),
      "tokens": sum(len(step.response_ids or ()) for step in trajectory.steps),
      "instruction": task.get("instruction")
      or transcript.instruction(trajectory)[:160],
  }


def _assemble(title: str, data: dict[str, Any], bodies: list[str]) -> str:
  script = "(() => {\n\"use strict\";\n" + "".join(map(_asset, _SCRIPTS)) + "})();\n"
  style = _asset("style.css")
  policy = (
      f"default-src 'none'; script-src '{_hash(script)}'; style-src"
      f" '{_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
  )
  blocks = [f'<script type="application/json" id="data">{embed(data)}</script>']
  blocks += [
      f'<script type="application/json" id="trajectory-{i}">{body}</script>'
      for i, body in enumerate(bodies)
  ]
  parts = {
      "POLICY": policy,
      "TITLE": html.escape(title),
      "STYLE": style,
      "DATA": "\n".join(blocks),
      "SCRIPT": script,
  }
  # one pass over the template, so nothing inside a part is taken for a place
  pieces = _asset("page.html").split("@@")
  return "".join(parts[p] if i % 2 else p for i, p in enumerate(pieces))


def _asset(name: str) -> str:
  return resources.files("eval.report").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
  digest = hashlib.sha256(text.encode()).digest()
  return "sha256-" + base64.b64encode(digest).decode()
