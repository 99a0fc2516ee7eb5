"""`python -m data_gen.audit --tasks=DIR`: see the package's docstring."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from absl import flags

from clawgym_jax import cli
from clawgym_jax.contracts.errors import UserError
from clawgym_jax.contracts.runs import only_writer
from data_gen import skills
from data_gen.audit.folder import attack_table
from data_gen.audit.report import printed_table
from data_gen.audit.run import audited
from sandbox.backends import check_backend
from sandbox.backends.flags import backend
from sandbox.reap import reap

_TASKS = flags.DEFINE_string("tasks", None, "Folder of task directories.")
_AGAINST = flags.DEFINE_string(
    "against", None, "Folder of tasks whose requests must not come again, as a bench."
)
_CONCURRENCY = flags.DEFINE_integer(
    "concurrency", 6, "Sandboxes at once.", lower_bound=1
)
_SKILLS = flags.DEFINE_string(
    "skills", None, "Folder of skills that the tasks were made with, if any."
)
_ALLOW = flags.DEFINE_bool(
    "allow_rejected", False, "Exit with status 0 although this run rejected tasks."
)
_EMBED = flags.DEFINE_bool(
    "embed", None,
    "Compare requests by meaning, too; default is where the model is installed.",
)  # fmt: skip
_ATTACKS = flags.DEFINE_bool(
    "attacks_only", False,
    "Judge nothing: only print what doing nothing and the adversaries score.",
)  # fmt: skip


def main() -> dict[str, Any]:
  if not _TASKS.value:
    raise UserError("--tasks is missing: give the folder of tasks")
  folder = _folder("tasks", _TASKS.value)
  against = _folder("against", _AGAINST.value) if _AGAINST.value else None
  library = skills.library(Path(_SKILLS.value)) if _SKILLS.value else None
  if _ATTACKS.value:
    check_backend(backend(), folder)
    reap()
    with only_writer(folder, "audit"):
      found = asyncio.run(attack_table(folder, _CONCURRENCY.value, backend()))
    print(printed_table(found["attacks"]))
    for name, cause in found["failed"].items():
      print(f"  {name}: {cause}")
    return found
  summary = audited(
      folder,
      concurrency=_CONCURRENCY.value,
      backend=backend(),
      library=library,
      against=against,
      embed=_EMBED.value,
  )
  if summary["rejected"] and not _ALLOW.value:
    raise UserError(
        f"{summary['rejected']} tasks were rejected and moved to"
        f" {folder / 'rejected'}; with --allow_rejected that is no error"
    )
  return summary


def _folder(flag: str, value: str) -> Path:
  folder = Path(value)
  if not folder.is_dir():
    raise UserError(f"--{flag}={folder} is not a folder")
  return folder


if __name__ == "__main__":
  cli.run(main)
