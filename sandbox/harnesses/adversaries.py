"""Agents that want the reward without the work; a sound task gives them 0.

Each writes something cheap over every path that the instruction names. None
calls a model or looks at the checks.
"""

from __future__ import annotations

import re

from sandbox.backends import Sandbox, SandboxError
from sandbox.harnesses.base import Harness, HarnessContext, HarnessResult

_PATH = re.compile(r"[\w~./-]*\w\.[A-Za-z][A-Za-z0-9]{0,7}\b")
_MOST_PATHS = 20
_MOST_BYTES = 1 << 20


def named_paths(instruction: str) -> list[str]:
  """Paths of files that `instruction` names, in order, relative to /workspace."""
  found = (m.group().removeprefix("/workspace/") for m in _PATH.finditer(instruction))
  paths = dict.fromkeys(p for p in found if p not in ("e.g", "i.e"))
  return list(paths)[:_MOST_PATHS]


class _Overwrite(Harness):
  """Writes `content` over every named path and says `content` too."""

  async def content(self, attempt: HarnessContext) -> bytes:
    raise NotImplementedError

  async def run(self, attempt: HarnessContext) -> HarnessResult:
    data = await self.content(attempt)
    for path in named_paths(attempt.task.instruction):
      await _write(attempt.sandbox, path, data)
    final = data.decode(errors="replace")
    transcript = [
        {"role": "user", "content": attempt.task.instruction},
        {"role": "assistant", "content": final},
    ]
    return HarnessResult(final, transcript=transcript)


class EmptyFiles(_Overwrite):
  """Makes every named file exist, with nothing in it."""

  name = "empty_files"

  async def content(self, attempt: HarnessContext) -> bytes:
    return b""


class PastePrompt(_Overwrite):
  """Answers with the question."""

  name = "paste_prompt"

  async def content(self, attempt: HarnessContext) -> bytes:
    return attempt.task.instruction.encode()


class EchoInputs(_Overwrite):
  """Puts all the workspace's files, one after the other, into each named file."""

  name = "echo_inputs"

  async def content(self, attempt: HarnessContext) -> bytes:
    sandbox = attempt.sandbox
    files = [e["path"] for e in await sandbox.list() if e["type"] == "file"]
    return b"".join([await sandbox.read(path) for path in files])[:_MOST_BYTES]


async def _write(sandbox: Sandbox, path: str, data: bytes) -> None:
  try:
    await sandbox.write(path, data)
  except SandboxError:
    return  # not a place where a file can be; the next path may be
