"""Where an attempt's commands run: isolated, bounded, and gone afterwards.

`open_sandbox` gives a sandbox that is not started yet; every backend keeps
the promises of `base.Sandbox`. A backend is one word all the way from a flag to
the worker that opens the sandbox: its name, and its own options behind a `?` as
in a URL, such as `docker?image=python:3.12-slim&runtime=runsc`.
"""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, urlencode

from clawgym_jax.contracts.errors import UserError
from sandbox.backends.base import (
    Bounds,
    ExecResult,
    Progress,
    Sandbox,
    SandboxError,
    SandboxLost,
)

__all__ = [
    "Bounds",
    "ExecResult",
    "Progress",
    "Sandbox",
    "SandboxError",
    "SandboxLost",
    "check_backend",
    "open_sandbox",
    "split",
    "with_options",
]

# Loaded when first asked for: what one needs, the others do without.
_CLASSES = {
    "bubblewrap": "BubblewrapSandbox",
    "docker": "DockerSandbox",
    "kubernetes": "KubernetesSandbox",
}
_OPTIONS = {
    "docker": ("image", "runtime", "cpus"),
    "kubernetes": (
        "namespace", "context", "image", "server", "runtime_class", "node_pids_limit",
        "user", "user_namespaces", "warm_pool", "cpu", "node_selector", "boot_seconds",
        "probe_network",
    ),
}  # fmt: skip


def check_backend(backend: str, *private: Path) -> None:
  """Raises `UserError` with what to do where `backend` can't run here, or where its
  sandboxes would show one of the folders `private` to what runs in them."""
  module, name, options = _load(backend)
  module.check(**options)
  for path, root in itertools.product(private, getattr(module, "SHOWN", ())):
    if path.resolve().is_relative_to(Path(root).resolve()):
      raise UserError(
          f"{path} lies below {root}, which every sandbox of {name} can"
          " read, checks and solutions with it: use a folder elsewhere"
      )


def open_sandbox(backend: str = "bubblewrap", **settings: Any) -> Sandbox:
  """A sandbox of `backend`, not started; `settings` as of its class."""
  module, name, options = _load(backend)
  return getattr(module, _CLASSES[name])(**options, **settings)


def with_options(backend: str, **options: str) -> str:
  """`backend` with those options that aren't empty; `UserError` for a wrong one."""
  given = {name: value for name, value in options.items() if value}
  if given:
    backend += ("&" if "?" in backend else "?") + urlencode(given, safe="/:@")
  split(backend)
  return backend


def _load(backend: str) -> tuple[ModuleType, str, dict[str, str]]:
  name, options = split(backend)
  return importlib.import_module(f"sandbox.backends.{name}"), name, options


def split(backend: str) -> tuple[str, dict[str, str]]:
  """Name and options; `UserError` for those that there are not."""
  name, _, query = backend.partition("?")
  if name not in _CLASSES:
    raise UserError(
        f"there is no backend {name!r}; use --backend= one of {', '.join(_CLASSES)}"
    )
  options = dict(parse_qsl(query))
  known = _OPTIONS.get(name, ())
  for option in options:
    if option not in known:
      raise UserError(
          f"the backend {name} has no option {option!r}"
          + (f", only {', '.join(known)}" if known else "")
      )
  return name, options
