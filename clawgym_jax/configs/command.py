"""`--config=FILE --config.key=value` on top of the shared command line.

`run(main, kind)` hands `main` a checked configuration of class `kind`, or of one of
several. FILE is a Python file with `get_config()`, or the name of one of this folder.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from absl import flags

from clawgym_jax import cli
from clawgym_jax.configs import base
from clawgym_jax.contracts.errors import UserError

ConfigT = TypeVar("ConfigT")


def run(
    main: Callable[[ConfigT], dict[str, Any] | None],
    *kinds: type[ConfigT],
    optional: bool = False,
) -> None:
  """Parses flags, builds the configuration, runs `main`; never returns.

  Where it is `optional`, no --config is the one of the first kind's defaults.
  """
  keys = {k: v for kind in reversed(kinds) for k, v in base.keys(kind()).items()}
  defaults = "\n".join(f"  --config.{k}={v}" for k, v in keys.items())
  config = flags.DEFINE_string(
      "config",
      None,
      "Python file with get_config(), or a name in clawgym_jax/configs. Any of"
      f" its keys can be set; their defaults:\n{defaults}",
      module_name=sys.argv[0],  # so that --help of the command shows it
  )
  overrides = [a for a in sys.argv[1:] if a.lstrip("-").startswith("config.")]
  sys.argv = [a for a in sys.argv if a not in overrides]

  def body() -> dict[str, Any] | None:
    items = [a.lstrip("-").removeprefix("config.") for a in overrides]
    if optional and config.value is None:
      return main(base.override(kinds[0](), items))
    return main(load(config.value, kinds, items))

  cli.run(body)


def load(
    path: str | None,
    kind: type[ConfigT] | tuple[type[ConfigT], ...],
    overrides: list[str],
) -> ConfigT:
  """The configuration of file or name `path`, overridden and checked."""
  folder = Path(__file__).parent
  names = sorted(
      p.stem for p in folder.glob("*.py")
      if p.stem not in ("__init__", "base", "command")
  )
  if not path:
    raise UserError(f"--config is missing: give a file or one of {', '.join(names)}")
  file = folder / f"{path}.py" if path in names else Path(path)
  if not file.is_file():
    raise UserError(f"--config={path} is no file and none of {', '.join(names)}")
  spec = importlib.util.spec_from_file_location(f"config_{file.stem}", file)
  if spec is None or spec.loader is None:
    raise UserError(f"--config={path} is not a Python file")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  if not hasattr(module, "get_config"):
    raise UserError(f"--config={path} has no function get_config()")
  config = module.get_config()
  kinds = kind if isinstance(kind, tuple) else (kind,)
  if not isinstance(config, kinds):
    raise UserError(
        f"--config={path} is a {type(config).__name__}; this command takes a"
        f" {' or a '.join(kind.__name__ for kind in kinds)}"
    )
  return base.override(config, overrides)
