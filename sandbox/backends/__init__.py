"""Where an attempt's commands run: isolated, bounded, and gone afterwards.

`open_sandbox` gives a sandbox that is not started yet; every backend keeps
the promises of `base.Sandbox`.
"""

from __future__ import annotations

from typing import Any

from clawgym_jax.contracts.errors import UserError
from sandbox.backends.base import (
    Bounds,
    ExecResult,
    Sandbox,
    SandboxError,
    SandboxLost,
)
from sandbox.backends.bubblewrap import BubblewrapSandbox, check

__all__ = [
    "Bounds",
    "ExecResult",
    "Sandbox",
    "SandboxError",
    "SandboxLost",
    "check_backend",
    "open_sandbox",
]


def check_backend(backend: str) -> None:
  """Raises `UserError` with what to do where `backend` can't run here."""
  if backend != "bubblewrap":
    raise UserError(
        f"backend {backend!r} isn't built in yet; use --backend=bubblewrap"
    )
  check()


def open_sandbox(backend: str = "bubblewrap", **settings: Any) -> Sandbox:
  """A sandbox of `backend`, not started; `settings` as of its class."""
  if backend != "bubblewrap":
    check_backend(backend)
  return BubblewrapSandbox(**settings)
