"""`python -m eval.view`: one run's trajectories as a page to look through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.files import write_atomic
from eval.report import build, runs

_RUN = flags.DEFINE_string("run", None, "A folder with trajectories.jsonl.")
_OUT = flags.DEFINE_string("out", None, "The HTML file to write.")


def main() -> dict[str, Any]:
  if not _RUN.value or not _OUT.value:
    raise UserError("--run=DIR and --out=FILE are needed; see --help")
  directory = Path(_RUN.value)
  name = directory.resolve().name
  run = runs.load_run(name, directory, suite=False)
  write_atomic(Path(_OUT.value), build.page([run], title=f"Trajectories of {name}"))
  print(f"wrote {_OUT.value}: {len(run.trajectories)} trajectories")
  return {"out": _OUT.value, "trajectories": len(run.trajectories)}


if __name__ == "__main__":
  cli.run(main)
