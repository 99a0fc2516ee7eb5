"""`python -m eval.report`: compares runs of one suite in one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_atomic
from eval.report import build, runs

_RUNS = flags.DEFINE_list(
    "runs", [], "Comma-separated name=folder of eval.run, from baseline to best."
)
_METRICS = flags.DEFINE_list(
    "metrics", [], "Comma-separated name=file of a trainer's metrics (JSON lines)."
)
_TIMINGS = flags.DEFINE_string(
    "timings", None, "A JSON array of {\"stage\": name, \"seconds\": number}."
)
_TITLE = flags.DEFINE_string("title", "Evaluation report", "The page's heading.")
_OUT = flags.DEFINE_string("out", None, "The HTML file to write.")


def main() -> dict[str, Any]:
  if not _RUNS.value or not _OUT.value:
    raise UserError("--runs=name=DIR,… and --out=FILE are needed; see --help")
  loaded = [
      runs.load_run(name, path)
      for name, path in runs.named_paths("runs", _RUNS.value).items()
  ]
  runs.require_one_suite(loaded)
  metrics = {
      name: runs.load_metrics(path)
      for name, path in runs.named_paths("metrics", _METRICS.value).items()
  }
  stages = runs.load_timings(Path(_TIMINGS.value)) if _TIMINGS.value else None
  page = build.page(loaded, title=_TITLE.value, metrics=metrics, stages=stages)
  write_atomic(Path(_OUT.value), page)
  comparisons = build.comparisons(loaded)
  for comparison in comparisons:
    print(comparison["sentence"])
  print(f"wrote {_OUT.value} ({len(page.encode()) / 1e6:.1f} MB)")
  return {
      "out": _OUT.value,
      "bytes": len(page.encode()),
      "runs": {
          run.name: {
              k: run.summary[k]
              for k in ("planned", "scored", "truncated", "unscored", "mean", "interval")
          }
          for run in loaded
      },
      "comparisons": [
          {k: c[k] for k in ("before", "after", "mean", "interval", "tasks")}
          for c in comparisons
      ],
  }


if __name__ == "__main__":
  cli.run(main)
