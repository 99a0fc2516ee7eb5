"""Runs what a test does with a sandbox, which is started before and stopped after."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sandbox.backends import Sandbox, open_sandbox
from sandbox.backends.base import Files


def run(
    body: Callable[[Sandbox], Awaitable[Any]],
    files: Files | Path = {},
    backend: str = "bubblewrap",
    **settings: Any,
) -> Any:
  """What `body` gives for a sandbox with these files and settings."""

  async def whole() -> Any:
    async with open_sandbox(backend, **settings) as sandbox:
      await sandbox.start(files)
      return await body(sandbox)

  return asyncio.run(whole())
