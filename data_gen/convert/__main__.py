"""Carries a set of tasks from one format to another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.task import SPLITS
from data_gen.convert.formats import FORMATS, convert

_FROM = flags.DEFINE_string("from", None, "Tasks in any format.")
_TO = flags.DEFINE_string("to", None, "A folder, a .tar, a .jsonl or a README.md.")
_FORMAT = flags.DEFINE_enum(
    "format", None, list(FORMATS), "Of --to, where its name does not say."
)
_SPLIT = flags.DEFINE_enum(
    "split", SPLITS[0], SPLITS, "Of tasks made by others, which have none."
)


def main() -> dict[str, Any]:
  if not _FROM.value or not _TO.value:
    raise UserError("--from and --to are needed: where tasks are, and where they go")
  source, target = Path(_FROM.value), Path(_TO.value)
  summary, losses = convert(source, target, _FORMAT.value or "", _SPLIT.value)
  for line in losses.lines():
    print(line)
  print(f"{summary['tasks']} tasks ({summary['new']} new): {source} -> {target}")
  return summary


if __name__ == "__main__":
  cli.run(main)
